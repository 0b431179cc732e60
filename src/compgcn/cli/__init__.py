"""The commands. Only this package prints; bad input is one sentence on stderr and exit code 1."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import Annotated

import typer

from compgcn import __version__
from compgcn.cli import answers, data, evaluate, export, listing, predict, serve, train, tune
from compgcn.cli.console import fail, out
from compgcn.errors import InputError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def main() -> None:
    """Run a command; turn what can go wrong into one sentence and an exit code."""
    # Threads that wait sleep rather than spin: as fast on an idle machine, several times faster on a busy one.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("compgcn.data.download").setLevel(logging.INFO)  # what is downloaded, and from where, is said
    for stream in (sys.stdout, sys.stderr):  # a terminal without the letters of a name shows something in their place
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except InputError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader had enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (MemoryError, RuntimeError) as error:
        if not _is_of_memory(error):
            raise
        fail("this needs more memory than there is; smaller encoder.dims or training.batch_size need less")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _is_of_memory(error: Exception) -> bool:
    """Whether memory ran out; torch says so on a CPU in the text of an error that may be any other."""
    said = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
    kinds = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch may not be loaded
    return kinds or any(words in str(error) for words in said)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"compgcn {__version__}")
        raise typer.Exit


@app.callback()
def compgcn(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """CompGCN: embed the entities and the relations of a knowledge graph together, and predict its missing facts.

    Example: compgcn train world && compgcn predict runs/world-compgcn-distmult-0 --head France --relation borders
    """


for command in (
    train.train,
    tune.tune,
    evaluate.evaluate,
    predict.predict,
    answers.discover,
    answers.explain,
    export.export,
    answers.similar,
    serve.serve,
    export.report,
):
    app.command()(command)
app.command("list")(listing.list_all)
app.add_typer(data.app, name="data")
