"""Tables of a results store; ``docs/results.md`` describes them for readers."""

from __future__ import annotations

SCHEMA_VERSION = 1
"""Raised whenever a table changes; another version is refused, never converted in place."""

APPLICATION_ID = 0x45585052
"""``EXPR`` in the file header, so that other SQLite files are told apart."""

POINT_COLUMNS = (
    "topology",
    "nodes",
    "collective",
    "root",
    "placement",
    "method",
    "sketch",
    "chunks",
    "cost_model",
    "fidelity",
    "protocol",
    "channels",
    "instances",
    "dialect",
)
"""Fields of the point that the ``results`` view shows as columns."""

ROW_COLUMNS = (
    "ranks",
    "requested_bytes",
    "size_bytes",
    "chunks_per_rank",
    "time_unit",
    "time_us",
    "algbw_gbs",
    "busbw_gbs",
    "bound_us",
    "sketch_bound_us",
    "optimality",
    "plan_time_us",
    "program_time_us",
    "synth_seconds",
    "sim_seconds",
    "limited",
)
"""Keys of the result that the ``results`` view shows as columns."""

ORDER = (
    ", ".join(
        f"json_extract(point, '$.{name}')"
        for name in (
            "topology",
            "nodes",
            "collective",
            "placement",
            "size_bytes",
            "method",
            "sketch",
            "chunks",
            "protocol",
            "channels",
            "instances",
        )
    )
    + ", key"
)
"""The order every reader iterates in: it does not depend on which point finished first."""

TABLES = f"""
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE points (
    key TEXT PRIMARY KEY,
    identity TEXT NOT NULL UNIQUE,
    scenario TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    point TEXT NOT NULL CHECK (json_valid(point)),
    row TEXT NOT NULL CHECK (json_valid(row)),
    error TEXT NOT NULL,
    error_code INTEGER NOT NULL,
    seconds REAL NOT NULL,
    versions TEXT NOT NULL CHECK (json_valid(versions)),
    created TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
);
CREATE TABLE programs (
    key TEXT PRIMARY KEY,
    npz BLOB NOT NULL
);
CREATE TABLE skipped (
    scenario TEXT NOT NULL,
    what TEXT NOT NULL,
    points INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (scenario, what)
) WITHOUT ROWID;
CREATE VIEW results AS SELECT
    key, scenario, status,
    {", ".join(f"json_extract(point, '$.{name}') AS {name}" for name in POINT_COLUMNS)},
    {", ".join(f"json_extract(row, '$.{name}') AS {name}" for name in ROW_COLUMNS)},
    error, error_code, seconds, created
FROM points ORDER BY {ORDER};
"""
