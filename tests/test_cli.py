"""The command line: verbs, JSON keys, exit codes and error texts, in process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from explorer.cli.main import main
from explorer.cli.synth import _sigterm_interrupts

Run = Callable[..., tuple[int, str, str]]
SYNTH = """topology ranks collective requested_bytes size_bytes time_unit method sketch
    chunks_per_rank cost_model time_us program_time_us bound_us sketch_bound_us optimality
    algbw_gbs busbw_gbs seconds stages limited xml verified"""
SIMULATE = """requested_bytes size_bytes time_us algbw_gbs busbw_gbs engine fidelity cost_model
    transfers seconds bottleneck"""


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["explorer", *map(str, args)])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return int(str(code)), out, err

    return run


def has_keys(document: dict[str, object], keys: str) -> bool:
    return not set(keys.split()) - set(document)


def test_synth_writes_a_file_that_verifies_runs_and_simulates(
    explorer: Run, tmp_path: Path
) -> None:
    xml = tmp_path / "ring.xml"
    machine = ("--topology", "ring:4")
    asked = (*machine, "--collective", "allgather", "--size", "1M", "--method", "ring")
    code, out, err = explorer("synth", *asked, "-o", xml, "--json")
    assert code == 0, err
    row = json.loads(out)
    assert has_keys(row, SYNTH)
    assert row["xml"] == str(xml)
    assert row["verified"] is True
    # A one-way ring of 4 moves 3/4 of the buffer through each link.
    assert row["program_time_us"] >= row["bound_us"] > 0
    code, out, err = explorer("verify", xml, "--dialect", "executor", "--json")
    assert (code, json.loads(out)[0]["ok"]) == (0, True), err
    code, out, err = explorer("run", xml, "--size", "64K", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True), err
    code, out, err = explorer("simulate", xml, *machine, "--size", "1M,4M", "--json")
    assert code == 0, err
    rows = json.loads(out)
    assert all(has_keys(r, SIMULATE) for r in rows)
    assert rows[0]["time_us"] == row["program_time_us"]


def test_both_engines_print_the_same_times(explorer: Run) -> None:
    asked = ("simulate", "ring", "-t", "ndv2", "-c", "allreduce", "--size", "1K..64K x8", "--json")
    times = []
    for engine in ("compiled", "simpy"):
        code, out, err = explorer(*asked, "--engine", engine)
        assert code == 0, err
        times.append([row["time_us"] for row in json.loads(out)])
    assert times[0] == times[1]
    assert times[0] == sorted(times[0])


def test_bound_names_what_sets_it(explorer: Run) -> None:
    asked = ("-t", "ndv2", "--nodes", 2, "-c", "allgather", "--size", "1G", "--json")
    code, out, err = explorer("bound", *asked)
    assert code == 0, err
    row = json.loads(out)
    assert has_keys(row, "latency_us bandwidth_us bound_us algbw_gbs bottleneck")
    assert "nic" in row["bottleneck"]


@pytest.mark.parametrize("size", ["0", "1", "31"])
def test_c12_sizes_below_one_element_take_no_time(explorer: Run, size: str) -> None:
    asked = ("-t", "full:8", "-c", "alltoall", "--size", size, "--json")
    code, out, err = explorer("simulate", "allpairs", *asked)
    assert code == 0, err
    (row,) = json.loads(out)
    assert (row["size_bytes"], row["time_us"], row["algbw_gbs"]) == (0, 0.0, None)
    assert row["requested_bytes"] == int(size)
    assert "zero bytes" in row["note"]


def test_c11_sizes_are_rounded_down_and_both_are_shown(explorer: Run) -> None:
    asked = ("-t", "full:12", "-c", "allgather", "--chunks", 5, "--size", "1MiB,1000000,48,100")
    code, out, err = explorer("simulate", "allpairs", *asked, "--json")
    assert code == 0, err
    sizes = [(row["requested_bytes"], row["size_bytes"]) for row in json.loads(out)]
    # 12 ranks x 5 chunks x 4 bytes = 240 bytes is the grain.
    assert sizes == [(1048576, 1048560), (1000000, 999840), (48, 0), (100, 0)]


def test_c39_one_rank_has_no_bandwidth(explorer: Run) -> None:
    asked = ("-t", "full:1", "-c", "allreduce", "--size", "1M", "--json")
    code, out, err = explorer("simulate", "ring", *asked)
    assert code == 0, err
    (row,) = json.loads(out)
    assert (row["time_us"], row["busbw_gbs"]) == (0.0, None)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("synth -t no_such_machine -c allgather --size 1M", "no_such_machine"),
        ("synth -t ndv -c allgather --size 1M", "did you mean 'ndv2'"),
        ("synth -t ring:4 -c allgathr --size 1M --method ring", "did you mean 'allgather'"),
        ("synth -t ring:4 -c allgather --size 1M --method rong", "did you mean 'ring'"),
        ("synth -t ring:4 -c allgather --size 1Q --method ring", "--size"),
        ("synth -t ring:4 -c allgather --method ring", "--size is needed"),
        ("synth -t ring:4 -c allgather --size 1M --method ring --chunks 0", "--chunks"),
        ("synth -t ring:4 -c allgather --size 1M --method ring --placement here", "--placement"),
        ("synth -t ring:4 -c broadcast --root 4 --size 1M --method ring", "root"),
        ("synth -t ndv2 --nodes 2 -c allgather --size 1M -k ndv2-sk1", "did you mean 'ndv2-sk-1'"),
        ("synth -t ndv2 --nodes 2 -c allgather --size 1M -k ndv2-sk-1 -m ring", "takes no sketch"),
        ("synth -t ndv2 --nodes 0 -c allgather --size 1M -m ring", "0"),
        ("simulate nothing.xml -t ring:4 --size 1M", "nothing.xml"),
        ("simulate ring -t ring:4 --size 1M", "--collective"),
        ("simulate ring -t ring:4 -c allgather --size 1M --engine fast", "fast"),
        ("simulate ring -t ring:4 -c allgather --size 1M --fidelity real", "real"),
        ("bound -t ring:4 -c allgather --size 1M --cost-model cheap", "exclusive"),
        ("verify nothing.xml", "nothing.xml"),
        ("run nothing.xml", "nothing.xml"),
        ("sweep nothing.yaml", "nothing.yaml"),
        ("show nothing", "nothing"),
        ("export nothing", "nothing"),
    ],
)
def test_bad_input_ends_with_2_and_says_what(explorer: Run, args: str, words: str) -> None:
    code, out, err = explorer(*args.split())
    assert code == 2, (out, err)
    assert words in err
    assert "Traceback" not in err
    assert out == ""


def test_wrong_program_ends_with_4_and_names_the_cycle(explorer: Run, tmp_path: Path) -> None:
    head = (
        '<algo name="x" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather"'
        ' inplace="0" outofplace="1" minBytes="0" maxBytes="1048576">'
    )
    gpu = (
        '<gpu id="{me}" i_chunks="1" o_chunks="2" s_chunks="0">'
        '<tb id="0" send="{you}" recv="{you}" chan="0">'
        '<step s="0" type="r" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="{you}" cnt="1"'
        ' depid="-1" deps="-1" hasdep="0"/>'
        '<step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="-1" cnt="1" depid="-1"'
        ' deps="-1" hasdep="0"/></tb>'
        '<tb id="1" send="-1" recv="-1" chan="0">'
        '<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{me}" cnt="1"'
        ' depid="-1" deps="-1" hasdep="0"/></tb></gpu>'
    )
    path = tmp_path / "deadlock.xml"
    body = "".join(gpu.format(me=me, you=1 - me) for me in (0, 1))
    path.write_text(f"{head}{body}</algo>", encoding="utf-8")
    code, out, err = explorer("verify", path)
    assert code == 4, err
    assert "DEADLOCK" in out
    code, out, err = explorer("simulate", path, "-t", "full:2", "--size", "1M")
    assert code == 4
    assert "gpu 0 tb 0 step 0" in err


def test_c38_a_short_limit_still_gives_a_verified_program(explorer: Run) -> None:
    asked = ("-t", "dgx2", "--nodes", 2, "-c", "alltoall", "--size", "1M", "--time-limit", "0.01")
    code, out, err = explorer("synth", *asked, "--json")
    assert code == 0, err
    row = json.loads(out)
    assert row["limited"] is True
    assert row["program_time_us"] >= row["bound_us"] > 0


def test_c49_sigterm_is_an_interrupt_during_synthesis_only(explorer: Run) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with _sigterm_interrupts():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == before
    code, _, err = explorer("synth", "-t", "ring:4", "-c", "allgather", "--size", "1M")
    assert code == 0, err
    assert signal.getsignal(signal.SIGTERM) == before


def test_help_does_not_import_what_it_does_not_need() -> None:
    code = (
        "import sys; sys.argv = ['explorer', '--help']\n"
        "from explorer.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'pandas', 'matplotlib', 'networkx', 'highspy', 'numba', 'simpy',"
        " 'pydantic', 'ruamel'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip().endswith("heavy: []")
    for verb in (
        "sweep",
        "show",
        "export",
        "synth",
        "simulate",
        "verify",
        "run",
        "bound",
        "topology",
    ):
        assert verb in out.stdout
