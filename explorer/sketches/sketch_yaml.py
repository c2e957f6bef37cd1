"""Reader for our own sketch YAML; keys in ``docs/sketches.md``."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from explorer.core.sketch import HYPEREDGE_POLICIES, Sketch, SwitchGroup
from explorer.errors import InputError, Problem
from explorer.sketches.fields import Fields, Pairs

_KEYS = (
    "name",
    "about",
    "nodes",
    "node_links",
    "switches",
    "senders",
    "relay",
    "enforce_ordering",
    "symmetry",
    "chunks",
    "multi_node",
    "time_limit_s",
    "gap",
)
_MAX_BYTES = 1 << 20


def read_sketch_yaml(path: Path, ranks: int, per_node: int) -> Sketch:
    """Read a sketch in our YAML.

    Parameters
    ----------
    path
        The file.
    ranks, per_node
        Ranks of the machine and of one node.

    Raises
    ------
    InputError
        With every problem at its key path.
    """
    fields = Fields(path.name, ranks, per_node)
    top = fields.only(_load(path), _KEYS)
    senders: Pairs | None = None
    if "senders" in top:
        senders = fields.senders(top["senders"], "senders")
    relay = fields.relays(top["relay"], "relay") if "relay" in top else None
    ordered = fields.flag(top.get("enforce_ordering", False), "enforce_ordering")
    multi_node = fields.word(top.get("multi_node", "relay"), ("relay", "round-robin"), "multi_node")
    fields.relays_send(relay, senders, ("relay", "senders"))
    sketch = Sketch(
        name=str(top.get("name", path.stem)),
        nodes=fields.nodes(top["nodes"], "nodes") if "nodes" in top else None,
        node_links=_node_links(fields, top),
        switches=_switches(fields, top.get("switches", [])),
        senders=senders,
        relay_of=relay,
        enforce_ordering=ordered,
        symmetry=fields.symmetry(top.get("symmetry", []), "symmetry"),
        chunks_per_rank=fields.chunks(top["chunks"], "chunks") if "chunks" in top else None,
        multi_node=multi_node,
        time_limit_s=_limit(fields, top, "time_limit_s"),
        gap=_limit(fields, top, "gap"),
        source=path.name,
    )
    if fields.problems:
        raise InputError(fields.problems)
    return sketch


def _load(path: Path) -> object:
    if path.stat().st_size > _MAX_BYTES:
        raise InputError(Problem(path.name, f"over {_MAX_BYTES} bytes, not a sketch"))
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        first = str(error.problem or error).splitlines()[0]
        raise InputError(Problem(f"{path.name}:{line}", first)) from None
    except (YAMLError, RecursionError, ValueError) as error:
        first = (str(error).splitlines() or ["nested too deep"])[0]
        raise InputError(Problem(path.name, f"not a sketch: {first}")) from None


def _node_links(fields: Fields, top: dict[str, object]) -> Pairs | None:
    value = top.get("node_links", "all" if "switches" not in top else [])
    if value == "all":
        return None
    if not isinstance(value, list):
        fields.problem("node_links", f"got {value!r}, expected `all` or a list of [a, b] pairs")
        return None
    pairs = []
    for i, item in enumerate(value):
        ends = fields.locals(item, f"node_links[{i}]")
        if len(ends) != 2:
            fields.problem(f"node_links[{i}]", f"got {item!r}, expected [a, b]")
        else:
            pairs += [ends, ends[::-1]]
    return tuple(sorted({(a, b) for a, b in pairs}))


def _switches(fields: Fields, value: object) -> tuple[SwitchGroup, ...]:
    if not isinstance(value, list):
        fields.problem("switches", f"got {value!r}, expected a list")
        return ()
    groups = []
    for i, item in enumerate(value):
        table = fields.only(item, ("ranks", "policy"), f"switches[{i}]")
        members = table.get("ranks", "all")
        ranks = (
            tuple(range(fields.per_node))
            if members == "all"
            else fields.locals(members, f"switches[{i}].ranks")
        )
        policy = fields.word(
            table.get("policy", "free"), HYPEREDGE_POLICIES, f"switches[{i}].policy"
        )
        groups.append(SwitchGroup(ranks, policy))
    return tuple(groups)


def _limit(fields: Fields, top: dict[str, object], key: str) -> float | None:
    value = top.get(key)
    return None if value is None else fields.number(value, key)
