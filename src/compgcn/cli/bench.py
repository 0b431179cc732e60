"""The commands `bench kernels`, `bench step`, `bench evaluate` and `bench costs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from compgcn.cli.console import Device, Json, Settings, err, out
from compgcn.cli.tables import plain_table
from compgcn.config import PATHS, Config, configure, parse_setting
from compgcn.data import KnowledgeGraph, find
from compgcn.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Measure this implementation beside the per-edge definition.")

_EXPERIMENT = "encoders"  # whose rows `bench costs` measures

Data = Annotated[str, typer.Option(help="A data set's name, or a file of triples.")]


@contextmanager
def _saying(*, kept: bool = False) -> Iterator[Callable[[str], None]]:
    """What is being measured, on a line that goes away; with `kept`, on lines that stay where no one is looking."""
    if not err.is_terminal:
        yield err.print if kept else lambda text: None
        return
    with err.status("starting") as status:
        yield lambda text: status.update(text)


def _graph(data: str, settings: list[str] | None, *, links: bool = True) -> tuple[KnowledgeGraph, dict[str, Any]]:
    """The graph, and all settings that were given; with `links`, one for link prediction."""
    given = {"data.source": data, **dict(map(parse_setting, settings or []))}
    graph = find(configure(Config(), given).data)
    if not isinstance(graph, KnowledgeGraph) or (links and graph.labels is not None):
        what = "trains and ranks links, as of fb15k-237 or world" if links else "takes one graph, not a collection"
        raise InputError(f"'{data}' is for classification; this bench {what}")
    return graph, given


def _head(report: dict[str, Any]) -> None:
    environment = report["environment"]
    out.print(f"{report['data']} on {environment['device']}, torch {environment['torch']}, {environment['date']}")


def _figure(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


@app.command("kernels")
def bench_kernels(
    data: Data = "fb15k-237",
    settings: Settings = None,
    scaling: Annotated[bool, typer.Option(help="Also graphs of more and more messages or relations.")] = True,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time the sum over edges and a layer, and what edge by edge costs.

    Example: compgcn bench kernels --data world --no-scaling
    """
    from compgcn import bench
    from compgcn.assembly.device import find_device

    with _saying() as say:
        report = bench.bench_kernels(_graph(data, settings)[0], find_device(device), scaling=scaling, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    out.print(f"copying moves {report['copy_gb_s']:,} GB/s; the plan takes {report['plan_ms']:,} ms, once per graph\n")
    table = plain_table("aggregate, d = 100", "", "ms>", "gathered GB/s>")
    for row in report["aggregate"]:
        table.add_row(row["composition"], row["what"], _figure(row["ms"], 3), _figure(row["gathered_gb_s"], 0))
    out.print(table)
    out.print()
    _show_layers("layer, 100 to 200", [(row["composition"], row) for row in report["layer"]])
    if scaling:
        out.print()
        _show_layers("messages (mult, 100 to 100)", [(f"{row['messages']:,}", row) for row in report["scaling"]])
        out.print()
        rows = [(f"{row['relations']:,}, {row['encoder']}", row) for row in report["relations"]]
        _show_layers("relations (16 to 16)", rows)


def _show_layers(title: str, rows: list[tuple[str, dict[str, Any]]]) -> None:
    table = plain_table(title, "ms>", "MiB>", "per edge, ms>", "MiB>", "faster>")
    for label, row in rows:
        theirs = row["per_edge"] or {"ms": None, "mib": None}
        faster = f"{row['times_faster']:.1f}x" if "times_faster" in row else "-"
        figures = (row["ours"]["ms"], row["ours"]["mib"], theirs["ms"], theirs["mib"])
        table.add_row(label, *(_figure(value, 1) for value in figures), faster)
    out.print(table)


@app.command("step")
def bench_step(
    data: Data = "fb15k-237", settings: Settings = None, device: Device = "auto", as_json: Json = False
) -> None:
    """Time a whole training step of the recommended model, for links with the loss and the batches of the paper.

    Example: compgcn bench step --data world --set batch_size=128
    """
    from compgcn import bench
    from compgcn.assembly.device import find_device

    graph, given = _graph(data, settings, links=False)
    with _saying() as say:
        report = bench.bench_step(graph, find_device(device), given, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    out.print(f"{report['parameters']:,} parameters, batches of {report['batch']}")
    if "floor_ms" in report:
        out.print(f"moving what must move takes {report['floor_ms']} ms at {report['copy_gb_s']:,} GB/s\n")
    table = plain_table("training step", "ms>", "MiB>", "times ours>")
    for name, row in report["steps"].items():
        ratio = row["ms"] / report["steps"]["ours"]["ms"]
        table.add_row(name, _figure(row["ms"], 3), _figure(row["mib"], 0), f"{ratio:.1f}")
    out.print(table)


@app.command("evaluate")
def bench_evaluate(
    data: Data = "fb15k-237", settings: Settings = None, device: Device = "auto", as_json: Json = False
) -> None:
    """Time the filtered ranking of a whole test split.

    Example: compgcn bench evaluate --data world
    """
    from compgcn import bench
    from compgcn.assembly.device import find_device

    graph, given = _graph(data, settings)
    with _saying() as say:
        report = bench.bench_evaluate(graph, find_device(device), given, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    ours, theirs = report["ours"], report["definition"]
    out.print(
        f"{report['ranks']:,} filtered ranks ({report['queries']:,} distinct queries) in {ours['ms'] / 1000:.3f} s: "
        f"{ours['us_per_rank']} us a rank, against {theirs['us_per_rank']:,} triple by triple"
    )


@app.command("costs")
def bench_costs(
    data: Data = "fb15k-237",
    row: Annotated[list[str] | None, typer.Option(help="Only this row; may be repeated.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile every step first, as long runs do: on a GPU some seconds a row.")
    ] = False,
    settings: Settings = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Time, memory and parameters of every scoring function with every encoder, by the settings of `encoders`.

    Example: compgcn bench costs --data world --row distmult-none --row distmult-compgcn-mult
    """
    from compgcn import bench
    from compgcn import experiment as lab
    from compgcn.assembly.device import find_device

    graph, given = _graph(data, settings)
    table = lab.experiments([_EXPERIMENT])[_EXPERIMENT]
    wanted = [table.row(name) for name in row] if row else table.rows
    given = {PATHS.get(name) or name: value for name, value in given.items()}  # as the rows call them
    rows = [bench.Row(one.name, one.label, {**lab.chosen(table, one), **given}) for one in wanted]
    with _saying(kept=True) as say:
        report = bench.bench_costs(graph, find_device(device), rows, compiled=compiled, say=say)
    if as_json:
        out.print_json(json.dumps(report))
        return
    _head(report)
    _show_costs(report["rows"])


def _show_costs(rows: list[dict[str, Any]]) -> None:
    table = plain_table("row", "step", "ms>", "s an epoch>", "MiB>", "parameters>")
    notes = []
    for row in rows:
        for name, cost in row["steps"].items():
            figures = (_figure(cost["ms"], 3), _figure(cost["seconds_per_epoch"]), _figure(cost["mib"], 0))
            table.add_row(row["row"], name, *figures, _figure(cost.get("parameters", row["parameters"]), 0))
        for name, why in row.get("left_out", {}).items():
            notes.append(f"{row['row']}, {name}: left out, {why}")
    out.print(table)
    for note in notes:
        out.print(note)
