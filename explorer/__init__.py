"""Design-space explorer for GPU collective communication.

See ``docs/design.md`` for the data path and the rooms.
"""

__version__ = "0.1.0"
