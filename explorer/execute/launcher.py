"""First process of a pool: imports once, forks the workers, and waits for them.

Run as ``python -m explorer.execute.launcher FD…`` with one inherited control socket per worker. It
is a fresh interpreter with a single thread, so its forks are safe whatever the caller has loaded,
and numpy is imported once for all workers instead of once for each.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy.random  # noqa: F401 - loaded here so that the workers share it

from explorer.execute.worker import Worker


def main(descriptors: Sequence[int]) -> None:
    """Fork one worker per control socket and return when all have ended."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = len(descriptors)
    pairs = {(i, j): socket.socketpair() for i in range(count) for j in range(i + 1, count)}
    children = []
    for index, descriptor in enumerate(descriptors):
        child = os.fork()
        if child == 0:
            _work(index, descriptors, pairs)
        children.append(child)
        os.close(descriptor)
    for pair in pairs.values():
        for end in pair:
            end.close()
    for child in children:
        os.waitpid(child, 0)


def _work(
    index: int,
    descriptors: Sequence[int],
    pairs: dict[tuple[int, int], tuple[socket.socket, socket.socket]],
) -> None:
    """Be a worker; never returns. Threads that still wait end with the process."""
    try:
        mine: dict[int, socket.socket] = {}
        for (i, j), (left, right) in pairs.items():
            for own, other, end in ((i, j, left), (j, i, right)):
                if own == index:
                    mine[other] = end
                else:
                    end.close()
        for descriptor in descriptors[index + 1 :]:  # earlier ones are closed already
            os.close(descriptor)
        Worker(index, Connection(descriptors[index]), mine).serve()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
