"""Compiled engine: the semantics of :mod:`sim.engine` on numba over flat arrays."""
