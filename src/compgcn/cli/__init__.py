"""The commands. Only this package prints; it answers bad input with one sentence on stderr and exit code 1."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import signal
import sys
from typing import Annotated

import typer
from typer import Option

from compgcn import __version__
from compgcn.cli import answers, data, evaluate, export, listing, plan, train, tune
from compgcn.cli.console import err, fail, out, under_torchrun
from compgcn.errors import InputError, out_of_memory

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def main() -> None:
    """Run a command; turn errors into one sentence and an exit code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting threads sleep: far faster on a busy machine
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("compgcn.data.download").setLevel(logging.INFO)  # prints each download
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        _under_torchrun() if under_torchrun() else app()
    except InputError as error:
        fail(str(error))
    except SystemExit as end:
        if end.code == 2 and "--" not in sys.argv and any(map(_dashed, sys.argv, sys.argv[1:])):
            err.print("Put -- before names that start with -.")
        raise
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (MemoryError, RuntimeError) as error:
        if under_torchrun() and isinstance(error, RuntimeError):
            from compgcn.processes import lost

            if lost(error):
                fail("another process has ended, so this one cannot go on; the same command resumes the run")
        if not out_of_memory(error):
            raise
        fail("this needs more memory than there is; smaller encoder.dims or training.batch_size need less")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _under_torchrun() -> None:
    """Run a command as one of several processes, of which the first prints."""
    from compgcn import processes

    processes.join()
    known = ("train", "evaluate", "predict", "export")
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        raise InputError(f"torchrun starts {', '.join(known[:-1])} and {known[-1]}; give other commands without it")
    with contextlib.ExitStack() as stack:
        if processes.rank():
            logging.disable()
            nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(nowhere))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        try:
            app()
        except SystemExit as end:
            if not end.code:
                processes.leave()
            raise


def _dashed(before: str, word: str) -> bool:
    """Tell whether a word may be a name that starts with -, and neither an option nor the value of one."""
    return re.match(r"-(\d|[^-].)", word) is not None and not before.startswith("-")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"compgcn {__version__}")
        raise typer.Exit


_LASTING = ("train", "tune", "serve")  # they decide themselves when Ctrl-C ends them


@app.callback()
def compgcn(
    context: typer.Context,
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """CompGCN: embed the entities and relations of a knowledge graph, and predict its missing facts.

    Example: compgcn train world && compgcn predict runs/world-compgcn-distmult-0 --head France --relation borders
    """
    if context.invoked_subcommand not in _LASTING:  # Ctrl-C raises, so that no half-written file stays
        signal.signal(signal.SIGINT, signal.default_int_handler)


for command in (
    train.train,
    plan.plan,
    tune.tune,
    evaluate.evaluate,
    answers.predict,
    answers.discover,
    answers.explain,
    export.export,
    answers.similar,
    export.serve,
    export.report,
):
    app.command()(command)
app.command("list")(listing.list_all)
app.add_typer(data.app, name="data")
