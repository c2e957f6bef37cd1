"""Reader for TACCL's sketch JSON (microsoft/taccl ``taccl/examples/sketch``) and its forks'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from explorer.core.sketch import Sketch, SwitchGroup
from explorer.errors import InputError, Problem
from explorer.sketches.fields import Fields, Pairs

_TOP = (
    "nnodes",
    "intranode_sketch",
    "internode_sketch",
    "symmetry_offsets",
    "hyperparameters",
    "parameters",
    "sym_description",
    "comment",
)
_MAX_BYTES = 1 << 20


def read_taccl_sketch(path: Path, ranks: int, per_node: int) -> Sketch:
    """Read a TACCL sketch.

    Parameters
    ----------
    path
        The JSON file.
    ranks, per_node
        Ranks of the machine and of one node.

    Raises
    ------
    InputError
        With every problem at its key path: unknown keys and words with the nearest allowed one,
        duplicate keys, ranks a node does not have.
    """
    fields = Fields(path.name, ranks, per_node)
    top = fields.only(_load(path, fields), _TOP)
    nodes = fields.nodes(top["nnodes"], "nnodes") if "nnodes" in top else None
    switches = _intranode(fields, top.get("intranode_sketch", {"strategy": "none"}))
    senders, relay, ordered, multi_node = _internode(fields, top.get("internode_sketch"))
    hyper = fields.only(top.get("hyperparameters", {}), ("input_chunkup",), "hyperparameters")
    chunks = fields.chunks(hyper.get("input_chunkup", 1), "hyperparameters.input_chunkup")
    symmetry = fields.symmetry(top.get("symmetry_offsets", []), "symmetry_offsets")
    limit, gap = _parameters(fields, top.get("parameters", {}))
    if fields.problems:
        raise InputError(fields.problems)
    return Sketch(
        name=path.stem,
        nodes=nodes,
        node_links=() if switches else None,
        switches=switches,
        senders=senders,
        relay_of=relay,
        enforce_ordering=ordered,
        symmetry=symmetry,
        chunks_per_rank=chunks,
        multi_node=multi_node,
        time_limit_s=limit,
        gap=gap,
        source=path.name,
        taccl=True,
    )


def _load(path: Path, fields: Fields) -> object:
    if path.stat().st_size > _MAX_BYTES:
        raise InputError(Problem(path.name, f"over {_MAX_BYTES} bytes, not a sketch"))

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                fields.problem(key, "key appears twice")
            table[key] = value
        return table

    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(Problem(f"{path.name}:{error.lineno}", error.msg)) from None
    except (UnicodeDecodeError, RecursionError):
        raise InputError(Problem(path.name, "not a JSON file")) from None


def _intranode(fields: Fields, value: object) -> tuple[SwitchGroup, ...]:
    key = "intranode_sketch"
    table = fields.only(value, ("strategy", "switches", "switch_hyperedge_strategy"), key)
    strategy = fields.word(table.get("strategy", "none"), ("none", "switch"), f"{key}.strategy")
    if strategy != "switch":
        return ()
    lists = table.get("switches")
    if not isinstance(lists, list) or not lists:
        fields.problem(f"{key}.switches", f"got {lists!r}, expected lists of local ranks")
        return ()
    policies = table.get("switch_hyperedge_strategy", ["free"] * len(lists))
    if not isinstance(policies, list) or len(policies) != len(lists):
        fields.problem(
            f"{key}.switch_hyperedge_strategy",
            f"expected one policy for each of {len(lists)} switches",
        )
        return ()
    return tuple(
        SwitchGroup(
            fields.locals(members, f"{key}.switches[{i}]"),
            fields.word(
                policy, ("uc-min", "uc-max", "free"), f"{key}.switch_hyperedge_strategy[{i}]"
            ),
        )
        for i, (members, policy) in enumerate(zip(lists, policies, strict=True))
    )


def _internode(
    fields: Fields, value: object
) -> tuple[Pairs | None, tuple[int, ...] | None, bool, str]:
    key = "internode_sketch"
    if value is None:
        # A sketch of several nodes must say how they connect; of one node it need not.
        return (None if fields.ranks == fields.per_node else ()), None, False, "relay"
    allowed = ("strategy", "internode_conn", "gpus_to_sender_rev_map", "enforce_ordering")
    table = fields.only(value, allowed, key)
    strategy = fields.word(
        table.get("strategy", "relay"), ("relay", "round-robin"), f"{key}.strategy"
    )
    senders = fields.senders(table.get("internode_conn", {}), f"{key}.internode_conn")
    relay = None
    if "gpus_to_sender_rev_map" in table:
        relay = fields.relays(table["gpus_to_sender_rev_map"], f"{key}.gpus_to_sender_rev_map")
    ordered = fields.flag(table.get("enforce_ordering", False), f"{key}.enforce_ordering")
    fields.relays_send(relay, senders, (f"{key}.gpus_to_sender_rev_map", f"{key}.internode_conn"))
    return senders, relay, ordered, strategy


def _parameters(fields: Fields, value: object) -> tuple[float | None, float | None]:
    """Solver limits of a fork: the routing stage's count, since it is the one that searches."""
    stages = fields.only(value, ("routing", "scheduler"), "parameters")
    found: dict[str, float] = {}
    for stage in ("scheduler", "routing"):
        table = fields.only(stages.get(stage, {}), ("MIPGaps", "TimeLimit"), f"parameters.{stage}")
        for name, number in table.items():
            limit = fields.number(number, f"parameters.{stage}.{name}")
            if limit is not None:
                found[name] = limit
    return found.get("TimeLimit"), found.get("MIPGaps")
