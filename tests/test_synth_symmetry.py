"""Symmetry: rotations, what is no automorphism, orbits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.collective import Collective
from explorer.core.rank_graph import RankGraph, rank_graph
from explorer.core.sketch import Sketch
from explorer.errors import InputError
from explorer.synth.symmetry import chunk_permutation, orbit_minimum, rotation, symmetry_group
from explorer.topologies.load import load_topology
from tests.synth_instances import DATA, graph_of, ring, switch


def group_of(graph: RankGraph, *pairs: tuple[int, int], collective: str = "allgather") -> object:
    kind = Collective(collective, graph.ranks)
    return symmetry_group(Sketch("s", symmetry=pairs, source="s.json"), graph, kind)


def test_rotation_turns_every_block() -> None:
    assert rotation(8, 2, 4).tolist() == [2, 3, 0, 1, 6, 7, 4, 5]
    assert rotation(4, 2, 4).tolist() == [2, 3, 0, 1]


def test_dgx1_mesh_does_not_rotate_and_the_link_without_image_is_named() -> None:
    # 0-3 is a single NVLink (46 per chunk); 1-4 do not touch.
    node = load_topology(str(DATA / "topologies" / "topo-ndv2-1MB.json"), 1, sized=False)
    with pytest.raises(InputError) as caught:
        group_of(rank_graph(node), (1, 8))
    assert str(caught.value) == (
        "s.json: symmetry_offsets[0]: rotation by 1 in blocks of 8:"
        " link 0->3 (46) has no image, 1->4 is absent"
    )


def test_every_problem_is_told_at_once() -> None:
    graph = graph_of(4, [(0, 1, 0, 1), (1, 2, 0, 1), (2, 3, 0, 1), (3, 0, 0, 2)])
    with pytest.raises(InputError) as caught:
        group_of(graph, (1, 3), (1, 4))
    first, second = caught.value.problems
    assert (first.where, first.message) == (
        "s.json: symmetry_offsets[0]",
        "blocks of 3 ranks do not divide the 4 ranks",
    )
    assert second.message.endswith("link 2->3 (1) and its image link 3->0 (2) differ")


def test_resources_must_be_shared_alike() -> None:
    # Edges 0->1 and 2->3 share a bus, 1->0 and 3->2 do not: swapping 0 and 1 is no symmetry.
    graph = graph_of(4, [(0, 1, 0, 1), (1, 0, 0, 1), (2, 3, 0, 1), (3, 2, 0, 1)])
    shared = RankGraph(
        graph.ranks,
        graph.node_of,
        graph.src,
        graph.dst,
        graph.alpha_us,
        graph.beta_us_per_mib,
        graph.resource_first,
        np.array([0, 1, 0, 2], np.int32),
        ("bus", "a", "b"),
    )
    assert group_of(shared, (2, 4)) is not None
    with pytest.raises(InputError, match=r"link 2->3 \(1\) shares bus otherwise"):
        group_of(shared, (1, 2))


def test_generators_make_the_whole_group() -> None:
    group = symmetry_group(
        Sketch("s", symmetry=((2, 4), (4, 8))), switch(8), Collective("allgather", 8, 2)
    )
    assert group.order == 4
    assert group.rank[0].tolist() == list(range(8))
    assert {tuple(row) for row in group.rank.tolist()} == {
        tuple((r // 4 ^ b) * 4 + (r % 4 ^ a) for r in range(8)) for a in (0, 2) for b in (0, 1)
    }


def test_chunks_follow_their_owners() -> None:
    turn = rotation(3, 1, 3)
    assert chunk_permutation(Collective("allgather", 3, 2), turn).tolist() == [2, 3, 4, 5, 0, 1]
    # AlltoAll: chunk 0 -> 1 (id 1) becomes 1 -> 2 (id 5).
    assert chunk_permutation(Collective("alltoall", 3), turn)[1] == 5
    assert chunk_permutation(Collective("broadcast", 3, 2), turn).tolist() == [0, 1]


def test_rotations_that_move_the_root_are_left_out() -> None:
    assert group_of(ring(4), (1, 4), collective="broadcast").order == 1  # type: ignore[attr-defined]


@given(st.integers(2, 6), st.integers(1, 5))
def test_orbits_partition_all_pairs(ranks: int, offset: int) -> None:
    group = symmetry_group(
        Sketch("s", symmetry=((offset, ranks),)), ring(ranks), Collective("allgather", ranks)
    )
    chunk, rank = (axis.ravel().astype(np.int32) for axis in np.indices((ranks, ranks)))
    ids = orbit_minimum(chunk, rank, ranks, (group.chunk, group.rank))
    # A rotation acts freely: orbits are as large as the group, and images share an orbit.
    assert set(np.bincount(ids)) <= {0, group.order}
    for g in range(group.order):
        image = group.chunk[g][chunk] * ranks + group.rank[g][rank]
        assert np.array_equal(ids[image], ids)
