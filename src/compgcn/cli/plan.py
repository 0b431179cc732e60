"""The command `plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from compgcn.cli.console import Json, Settings, describe, out, show_json, show_table
from compgcn.cli.train import Model, asked_for, in_words, read_data, with_settings
from compgcn.config import Config, configure
from compgcn.data import KnowledgeGraph
from compgcn.data.columns import counted
from compgcn.errors import InputError
from compgcn.train.recipes import MINUTES
from compgcn.train.recipes import model as find_model

if TYPE_CHECKING:
    from compgcn.run.plan import Plan, Rates

_GIB = 2**30
_WHEN = {"always": "", "step": "in a step", "evaluation": "in an evaluation", "disk": "on disk"}


@with_settings
def plan(
    data: Annotated[str | None, Argument(metavar="DATA", help="As for train; or give sizes.")] = None,
    devices: Annotated[int, Option(help="Processes that torchrun starts, each with its device.", min=1)] = 1,
    memory: Annotated[float | None, Option(help="GiB of a device, to say what fits.", min=0.001)] = None,
    entities: Annotated[int | None, Option(help="Entities, in place of DATA.", min=2, max=10**10)] = None,
    relations: Annotated[int | None, Option(help="Relations, in place of DATA.", min=1)] = None,
    triples: Annotated[int | None, Option(help="Triples of all splits, in place of DATA.", min=3, max=10**12)] = None,
    rates: Annotated[
        Path | None, Option(help="Rates of another machine: a file that plan --json wrote there.", metavar="FILE")
    ] = None,
    network: Annotated[float, Option(help="GB a second that a device sends; not measured.", min=0.001)] = 25.0,
    model: Model = None,
    settings: Settings = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Count the memory and the time of a training before it begins.

    It measures this machine for about a second, and plans a single model, but not the conditional one. `train`
    may compare several; the last line then says so. The exit code is 1 if the training does not fit.

    Example: compgcn plan my-triples.tsv --memory 8

    Example: compgcn plan --entities 4600000 --relations 822 --triples 20600000 --devices 4 --memory 80
    """
    sizes = {"entities": entities, "relations": relations, "triples": triples}
    given = {name: size for name, size in sizes.items() if size is not None}
    if bool(given) == (data is not None) or len(given) not in (0, 3):
        raise InputError("plan takes a graph, or all of --entities, --relations and --triples; give one or the other")
    asked, _ = asked_for(data or "outline.tsv", options, settings, None)
    from compgcn.run import plan as planning
    from compgcn.run.build import find_device
    from compgcn.run.portfolio import budget
    from compgcn.run.resolve import resolve

    own = {} if model is None else find_model(model).settings
    planning.must_have_vectors(configure(configure(Config(), own), asked))  # before it reads any data
    if data is None:
        shares = configure(Config(), asked).data
        held_out = shares.valid_fraction, shares.test_fraction
        found: KnowledgeGraph = planning.Outline(given["entities"], given["relations"], given["triples"], held_out)
    else:
        read = read_data(asked, model)
        if not isinstance(read, KnowledgeGraph):
            raise InputError(f"'{data}' is a collection of graphs; a plan is for one knowledge graph")
        found = replace(read, notes=())
    config = resolve(asked, found, model).config
    if not config.training.epochs:
        raise InputError("training.epochs = 0 trains nothing to plan; give at least 1")
    if devices > found.num_entities:
        raise InputError(
            f"{devices:,} devices cannot share {found.num_entities:,} entities, of which each holds some; give fewer"
        )
    here = planning.read_rates(rates) if rates else planning.measure(find_device(config.training.device))
    here = here._replace(network=network * 1e9)
    made = planning.plan(config, found, devices, here)
    fits = memory is None or made.peak <= memory * _GIB
    fitting = {} if fits else planning.remedies(config, found, devices, here, (memory or 0) * _GIB)
    if as_json:
        show_json(_tree(made, here, memory, fitting))
    else:
        describe(found.name, found.statistics(), [])
        _show(made, here, memory, fitting)
        if devices == 1 and not isinstance(budget(None, None, asked, found, model), str):
            out.print(f"`train` compares models for {MINUTES:g} min; --encoder {config.encoder.name} trains this one")
    if not fits:
        raise SystemExit(1)


def _tree(made: Plan, rates: Rates, memory: float | None, fitting: dict[str, int]) -> dict[str, Any]:
    return {
        "devices": made.shape.ranks,
        "settings": {"encoder": made.config.encoder.name, "dims": list(made.config.encoder.dims)}
        | {"decoder": made.config.decoder.name, "loss": made.config.training.loss}
        | {"batch_size": made.config.training.batch_size, "optimiser": made.config.training.optimiser},
        "shape": made.shape._asdict(),
        "parts": [part._asdict() for part in made.parts],
        "peak": made.peak,
        "host": made.host,
        "fits": None if memory is None else made.peak <= memory * _GIB,
        "remedies": fitting,
        "steps": made.steps,
        "sent": made.sent,
        "seconds": made.seconds,
        "rates": rates._asdict(),
    }


def _show(made: Plan, rates: Rates, memory: float | None, fitting: dict[str, int]) -> None:
    config, n = made.config, made.shape.ranks
    rows = []
    for part in made.parts:
        where = "host" if part.host and made.host else _WHEN[part.when]
        share = "" if n == 1 else "its share" if part.sharded else "all of it"
        rows.append((part.name, _size(part.bytes), share, where))
    rows.append(("peak", _size(made.peak), "", f"of a {rates.device} device"))
    if made.host:
        rows.append(("host", _size(made.host), "", "for each process"))
    name = f"{config.encoder.name} + {config.decoder.name}, {config.training.loss}, batch {config.training.batch_size}"
    show_table(("part", "bytes>", f"each of {n} holds" if n > 1 else "", ""), rows, title=name)
    seconds = made.seconds
    slow = max((key for key in seconds if key not in ("step", "epoch", "evaluation")), key=lambda key: seconds[key])
    sent = f", {_size(made.sent)} sent by each device" if n > 1 else ""
    epoch, step, ranking = (_time(seconds[key]) for key in ("epoch", "step", "evaluation"))
    out.print(f"an epoch of {counted(made.steps, 'step')} takes about {epoch}, an evaluation {ranking}")
    out.print(f"a step takes {step}, most of it for {slow}{sent}")
    if memory is None:
        return
    if made.peak <= memory * _GIB:
        out.print(f"it fits into {memory:g} GiB")
        return
    known = "each of these would make it fit:" if fitting else "no single change that plan knows would make it fit"
    out.print(f"it does not fit into {memory:g} GiB; {known}")
    for words, peak in fitting.items():
        out.print(f"  {words}  ({_size(peak)})")


def _size(number: float) -> str:
    return f"{number / _GIB:,.2f} GiB" if number >= _GIB / 10 else f"{number / 2**20:,.1f} MiB"


def _time(seconds: float) -> str:
    if seconds < 1e-6:
        return "less than 0.001 ms"
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else in_words(seconds)
