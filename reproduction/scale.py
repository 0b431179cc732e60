"""The tables of docs/scale.md: what several processes can train, and public graphs on many GPUs, on paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compgcn.run.plan import OPERATIONS, Outline, Plan, Rates, plan
from compgcn.run.report import Table
from compgcn.run.resolve import resolve
from compgcn.shards.link_prediction import SUPPORTED
from reproduction.large import settings_of, sizes_of

GRAPHS = {  # entities, relations, triples
    "Wikidata5M": (4_600_000, 822, 20_600_000),
    "Freebase": (86_000_000, 14_824, 338_000_000),
    "WikiKG90Mv2": (91_000_000, 1_387, 601_000_000),
}
MODELS: dict[str, dict[str, Any]] = {"DistMult": {}, "DistMult + CompGCN": {"encoder": "compgcn"}}
DEVICES = (8, 64, 256)
# Trainings that the constants of a plan follow.
FITTED = dict.fromkeys(("60000:12000:100", "300000:110000:100", "1000000:200000:100"), "memory and time")
FITTED["300000:60000:100, large"] = "memory"
_MEMORY = 80  # GiB


def rates(step: dict[str, Any], kernels: dict[str, Any], costs: dict[str, Any]) -> Rates:
    """Derive the rates of a GPU from the committed reports of its benchmarks.

    A copy gives the stream; the two largest graphs of a layer, forward and backward, the rows gathered; a step of
    DistMult over all entities the products; and the eager step less the recorded one the calls.
    """
    small, large = kernels["scaling"][-2:]
    more, took = large["messages"] - small["messages"], (large["ours"]["ms"] - small["ours"]["ms"]) / 1000
    row = next(one for one in costs["rows"] if one["label"] == "DistMult")
    work = 6 * row["batch"] * _ENTITIES[costs["data"]] * row["settings"]["encoder.dims"][-1]
    calls = (step["steps"]["ours, eager"]["ms"] - step["steps"]["ours"]["ms"]) / 1000
    return Rates(
        device="cuda",
        stream=step["copy_gb_s"] * 1e9,
        gather=3 * 4 * 100 * more / took,
        products=work / (row["steps"]["ours"]["ms"] / 1000),
        call=calls / OPERATIONS,
    )


_ENTITIES = {"fb15k-237": 14_541}


def on_paper(here: Rates) -> list[str | Table]:
    """Return the rates in a sentence, and the table of public graphs."""
    rows = []
    for name, sizes in GRAPHS.items():
        data = Outline(*sizes)
        for model, settings in MODELS.items():
            config = resolve({"data.source": "outline.tsv", **settings}, data).config
            for devices in DEVICES:
                made = plan(config, data, devices, here)
                rows.append([name, model, str(devices), *_cells(made)])
    stated = (
        f"Rates of the NVIDIA H200: {here.stream / 1e12:.1f} TB/s of numbers in order, {here.gather / 1e12:.1f} TB/s "
        f"of gathered rows, {here.products / 1e12:.0f} TFLOP/s of products, {1e6 * here.call:.0f} µs a call. Assumed, "
        f"not measured: a GPU sends {here.network / 1e9:.0f} GB/s."
    )
    columns = ("graph", "model", "GPUs", "GiB a GPU", f"fits {_MEMORY}", "GiB of host a GPU", "MB sent a step")
    return [stated, Table("", (*columns, "step", "hours an epoch", "most time for"), rows)]


def _cells(made: Plan) -> list[str]:
    seconds = made.seconds
    slow = max((key for key in seconds if key not in ("step", "epoch", "evaluation")), key=lambda key: seconds[key])
    gib = made.peak / 2**30
    step = f"{seconds['step']:.1f} s" if seconds["step"] >= 1 else f"{1000 * seconds['step']:.0f} ms"
    memory = [f"{gib:.0f}", "yes" if gib <= _MEMORY else "**no**", f"{made.host / 2**30:.0f}"]
    return [*memory, f"{made.sent / 1e6:,.0f}", step, f"{seconds['epoch'] / 3600:,.2g}", slow]


def of_size(size: str, here: Rates) -> Plan:
    """Return the plan for one process, by TRIPLES:ENTITIES:RELATIONS as `settings_of` has it."""
    triples, entities, relations = sizes_of(size)
    data = Outline(entities, relations, triples)
    return plan(resolve({"data.source": "outline.tsv", **settings_of(size)}, data).config, data, 1, here)


def beside_measured(rows: Mapping[str, Any]) -> Table:
    """Return plans by the rates measured before each training, beside what it took."""
    lines = []
    for size, row in rows.items():
        made, found = of_size(size, Rates(**row["rates"])), row["measured"]
        e, d, training = made.config.encoder, made.config.decoder, made.config.training
        triples, entities, _ = (f"{number:,}" for number in sizes_of(size))
        memory = [f"{peak / 2**20:,.0f} MiB" for peak in (made.peak, found["peak"])]
        planned = made.seconds["epoch"] + made.seconds["evaluation"]
        model = f"{e.name} + {d.name}, {training.loss}"
        lines.append([triples, entities, model, *memory, *(f"{one:,.0f} s" for one in (planned, found["seconds"]))])
        lines[-1].append(FITTED.get(size, "nothing"))
    columns = ("triples", "entities", "model", "peak memory, planned", "measured")
    return Table("", (*columns, "epoch and evaluation, planned", "measured", "fitted to its"), lines)


def supported() -> Table:
    """Return what several processes can train, as the package declares and tests it."""
    rows = []
    for row in SUPPORTED:
        names = ", ".join(f"`{name}`" for name in row.names)
        rows.append([row.part, names, row.how, "the same" if row.same else "other random numbers"])
    return Table("", ("part", "names", "how", "numbers of one process"), rows)
