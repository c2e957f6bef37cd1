"""The ``explorer`` command: verbs, exit codes, and errors without tracebacks.

Verb modules import what they compute with inside their functions: ``explorer --help`` must answer
in under 0.3 s.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from explorer.cli import (
    bound,
    export,
    logs,
    plan,
    run,
    show,
    simulate,
    sweep,
    synth,
    topology,
    verify,
)
from explorer.errors import ExplorerError

app = typer.Typer(
    name="explorer",
    help="Synthesize, verify, simulate and rank GPU collectives; export the winners as MSCCL XML.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for module in (sweep, show, export, synth, simulate, verify, run, bound, logs, plan):
    app.command(module.NAME, help=module.HELP, epilog=f"Example: {module.EXAMPLE}")(module.command)
app.add_typer(topology.app, name="topology")


def _version(value: bool) -> None:
    if value:
        from explorer import __version__

        print(f"explorer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the verb."""


def main() -> None:
    """Run the command line; user errors end with their exit code and no traceback."""
    debug = bool(os.environ.get("EXPLORER_DEBUG"))
    try:
        app()
    except ExplorerError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        print(
            f"bug: {type(error).__name__}: {error}\n"
            "This is a fault of explorer, not of the input. EXPLORER_DEBUG=1 prints the traceback.",
            file=sys.stderr,
        )
        sys.exit(1)
