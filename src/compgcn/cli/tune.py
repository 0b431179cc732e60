"""The command `tune`."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from compgcn.cli.console import Json, describe, err, options_of, out, plain_table
from compgcn.cli.train import asked_for, read_data, stop_requests, train
from compgcn.config import BUDGET, PATHS, Config, Space, configure, parse_setting, write_setting
from compgcn.data.columns import counted
from compgcn.run.plots import check_figure, draw_study

if TYPE_CHECKING:
    from compgcn.run.tune import Plan


_SHOWN = 10  # trials in a table


@options_of(train, without=("run_dir", "overwrite"))
def tune(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="As for train; a TOML may have a table [search] with the values of settings to try."
        ),
    ],
    search: Annotated[
        Path | None,
        typer.Option(help="A TOML with the table [search]; the paper's grid if there is none.", metavar="FILE"),
    ] = None,
    trials: Annotated[int, typer.Option(help="How many the study is to have, over all workers.", min=1)] = 50,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which no new trial is begun.", min=0)] = None,
    jobs: Annotated[int, typer.Option(help="Processes at work side by side.", min=1)] = 1,
    pruner: Annotated[
        str, typer.Option(help="median, hyperband or none: what stops a trial that falls behind.")
    ] = "median",
    storage: Annotated[
        str | None,
        typer.Option(help="URL of a database that several machines share; a file in the folder if not given."),
    ] = None,
    study_dir: Annotated[
        Path | None,
        typer.Option(help="The study's folder; runs/<data>-<encoder>-<decoder>-tune if not given.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Draw history and importance: a .png, .pdf or .svg file.", metavar="FILE", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Search for settings, judged on validation alone. The same command again goes on with the study.

    The best are written as best.toml, for train; --epochs bounds the trials only. Started several times, the commands
    share the work.

    Example: compgcn tune world --trials 20 --epochs 10
    """
    if plot is not None:
        check_figure(plot)
    settings, model = options.pop("settings"), options.pop("model")
    asked, space, budget = _asked(data, options, settings, search)
    found = read_data(asked, model)
    from compgcn.run import tune as tuning  # torch comes with it: what is wrong is said before
    from compgcn.run.tune import plan as make_plan
    from compgcn.train.loop import Interrupted

    plan = make_plan(asked, found, space, study_dir, model, budget)
    study = tuning.open_study(plan, storage, trials, pruner)
    if not as_json:
        describe(found)
        out.print(f"{plan.folder}: {counted(len(tuning.finished(study)), 'trial')} so far")
    common = (asked, space, study_dir, model, budget, storage, trials, pruner, timeout)
    try:
        with _workers(jobs - 1, common), stop_requests() as stopped, _live(plan, study, as_json) as notify:
            tuning.work(plan, study, trials, timeout, notify, stopped)
    except Interrupted:
        err.print(f"stopped; the same command goes on from here ({plan.folder})")
        raise SystemExit(130) from None
    result = tuning.result(plan, study)
    best = tuning.write_best(plan, study)
    if plot is not None:
        draw_study(result, tuning.history(study), plot)
    if as_json:
        out.print_json(json.dumps(result | {"best_toml": str(best)}))
        return
    out.print(_table(plan, study))
    counts = ", ".join(f"{result[key]} {key}" for key in ("complete", "pruned", "refused"))
    out.print(
        f"{counted(result['trials'], 'trial')}: {counts}; best validation {plan.goal} {result['best']['value']:.4f}"
    )
    for path, share in result["importance"].items():
        out.print(f"  {100 * share:3.0f} % of the difference is {path}")
    if remark := _of_budget(plan, result["best"]["settings"]):
        out.print(remark)
    out.print(f"train with the best: compgcn train {best} --run-dir {plan.folder / 'best'}")


def _asked(
    data: str, options: Mapping[str, Any], settings: Sequence[str] | None, search: Path | None
) -> tuple[dict[str, Any], Space | None, dict[str, Any]]:
    """As `asked_for`, with what the command line says of the budget of a trial apart, by path."""
    whole, space = asked_for(data, options, settings, search)
    kept = [text for text in settings or [] if PATHS.get(parse_setting(text)[0]) not in BUDGET]
    asked, _ = asked_for(data, {**options, "epochs": None}, kept, search)
    by_path = {PATHS.get(name, name): value for name, value in whole.items()}
    budget = {path: by_path[path] for path in BUDGET if path in by_path and by_path[path] != asked.get(path)}
    configure(Config(), budget)  # what is wrong with it is said before data are read
    return asked, space, budget


def _of_budget(plan: Plan, chosen: Mapping[str, Any]) -> str | None:
    """That what is trained with the best settings is trained for longer than the trials were, or for less long."""
    trial, final = plan.config(chosen).training.epochs, plan.final(chosen).training.epochs
    if trial == final:
        return None
    whose = "the file's" if "training.epochs" in plan.settings else "the recipe's"
    return f"trials had {counted(trial, 'epoch')} each; best.toml trains for {whose} {final}"


def _work(
    asked: Mapping[str, Any],
    space: Space | None,
    study_dir: Path | None,
    model: str | None,
    budget: Mapping[str, Any],
    *shared: Any,
) -> None:
    """What another process does: the same, in silence."""
    from compgcn.run import tune as tuning
    from compgcn.run.tune import plan as make_plan
    from compgcn.train.loop import Interrupted

    storage, trials, pruner, timeout = shared
    plan = make_plan(asked, read_data(asked), space, study_dir, model, budget)
    study = tuning.open_study(plan, storage, trials, pruner)
    with stop_requests() as stopped:
        try:
            tuning.work(plan, study, trials, timeout, interrupted=stopped)
        except Interrupted:
            raise SystemExit(130) from None


@contextmanager
def _workers(number: int, arguments: tuple[Any, ...]) -> Iterator[None]:
    """So many other processes at work; what ends this one early asks them to stop."""
    context = multiprocessing.get_context("spawn")  # a fork would share what torch and CUDA hold
    started = [context.Process(target=_work, args=arguments) for _ in range(number)]
    for process in started:
        process.start()
    try:
        yield
    except BaseException:
        for process in started:
            process.terminate()
        raise
    finally:
        for process in started:
            process.join()


@contextmanager
def _live(plan: Plan, study: Any, quiet: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """The best trials and where the present one stands, as they change; nothing where no one is looking."""
    if quiet or not err.is_terminal:
        yield lambda event: None
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=err, transient=True, auto_refresh=False) as live:

        def notify(event: dict[str, Any]) -> None:
            if event["event"] != "epoch":
                return
            part = f"{event['part']}, " if "part" in event else ""
            where = f"trial {event['trial']}: {part}epoch {event['epoch']}/{event['epochs']}, loss {event['loss']:.4f}"
            live.update(Group(_table(plan, study), Text(where)), refresh=True)

        yield notify


def _table(plan: Plan, study: Any) -> Table:
    """The best trials, one a line."""
    from compgcn.run import tune as tuning

    table = plain_table("trial>", f"valid {plan.goal}>", "settings")
    values = [trial for trial in tuning.finished(study) if trial.state.name == "COMPLETE"]
    for trial in sorted(values, key=lambda trial: -(trial.value or 0.0))[:_SHOWN]:
        chosen = tuning.settings_of(trial, plan.space)
        text = "  ".join(write_setting(path, value).replace(" = ", "=") for path, value in chosen.items())
        table.add_row(str(trial.number), f"{trial.value:.4f}", text)
    return table
