"""The command `tune`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from compgcn.cli.console import Json, Plot, Settings, describe, err, out, show_json, show_table
from compgcn.cli.train import Model, asked_for, read_data, watched, with_settings
from compgcn.config import BUDGET, PATHS, Config, Space, configure, write_setting
from compgcn.data.columns import counted
from compgcn.errors import InputError
from compgcn.run.plots import draw_study

if TYPE_CHECKING:
    import optuna

    from compgcn.run.tune import Plan

_SHOWN = 10  # trials in the table
_WAIT = 0.2  # seconds between looks at the other processes


@with_settings
def tune(
    data: Annotated[str, Argument(metavar="DATA", help="As for train; a TOML may have a table [search].")],
    model: Model = None,
    settings: Settings = None,
    search: Annotated[
        Path | None,
        Option(help="A TOML with a table [search] of values to try; else the paper's grid.", metavar="FILE"),
    ] = None,
    trials: Annotated[int, Option(help="Number of trials of the study, over all workers.", min=1)] = 50,
    timeout: Annotated[float | None, Option(help="Seconds after which no new trial begins.", min=0)] = None,
    jobs: Annotated[int, Option(help="Processes that work side by side.", min=1)] = 1,
    pruner: Annotated[str, Option(help="Stops trials that fall behind: median, hyperband or none.")] = "median",
    storage: Annotated[str | None, Option(help="URL of a shared database; else a file in the folder.")] = None,
    study_dir: Annotated[
        Path | None, Option(help="The folder; by default runs/<data>-<encoder>-<decoder>-tune.")
    ] = None,
    plot: Plot = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Search for settings on validation. The same command again continues.

    It writes the best settings to best.toml, for train; --epochs bounds the trials only. Several such commands at once
    share the work.

    Example: compgcn tune world --trials 20 --epochs 10
    """
    if importlib.util.find_spec("optuna") is None:
        raise InputError("settings are searched with Optuna: pip install 'compgcn[tune]'")
    asked, space, budget = _asked(data, options, settings, search)
    found = read_data(asked, model)
    from compgcn.run import tune as tuning

    plan = tuning.plan(asked, found, space, study_dir, model, budget)
    study = tuning.open_study(plan, storage, trials, pruner)
    if not as_json:
        describe(found.name, found.statistics(), found.notes)
        out.print(f"{plan.folder}: {counted(len(tuning.finished(study)), 'trial')} so far")
    with watched(plan.folder, as_json) as (notify, stopped), _workers(jobs - 1, plan.folder, stopped):

        def tell(event: dict[str, Any]) -> None:
            fold = f", {event['part']}" if "part" in event else ""
            notify({**event, "part": f"trial {event['trial']}{fold}"})

        tuning.work(plan, study, trials, timeout, tell, stopped)
    result = tuning.result(plan, study)
    best = tuning.write_best(plan, study)
    if plot is not None:
        draw_study(result, tuning.history(study), plot)
    if as_json:
        show_json(result | {"best_toml": str(best)})
    else:
        _show(plan, study, result, best)


def _asked(
    data: str, options: Mapping[str, Any], settings: Sequence[str] | None, search: Path | None
) -> tuple[dict[str, Any], Space | None, dict[str, Any]]:
    """Return the settings by path, the space, and apart from both the command line's budget of a trial."""
    asked, space = asked_for(data, options, settings, search)
    whole, file = (
        {PATHS.get(name, name): value for name, value in some.items()}
        for some in (asked, asked_for(data, {}, None, search)[0])
    )
    budget = {path: whole[path] for path in BUDGET if path in whole and whole[path] != file.get(path)}
    configure(Config(), budget)  # refuses a mistake before the data are read
    kept = {path: value for path, value in whole.items() if path not in budget}
    return kept | {path: file[path] for path in budget if path in file}, space, budget


@contextmanager
def _workers(number: int, folder: Path, stopped: Callable[[], bool]) -> Iterator[None]:
    """Run this command in other processes too, and wait for them; stop them if this one ends early.

    A file in the folder keeps what they say on stderr.
    """
    from compgcn.train.loop import Interrupted

    line = [sys.executable, "-m", "compgcn", *sys.argv[1:], "--jobs", "1", "--json"]
    nowhere, said = subprocess.DEVNULL, folder / "workers.log"
    with said.open("ab") if number else nullcontext() as log:
        started = [subprocess.Popen(line, stdin=nowhere, stdout=nowhere, stderr=log) for _ in range(number)]
    try:
        yield
        while any(process.poll() is None for process in started):
            if stopped():
                raise Interrupted
            time.sleep(_WAIT)
        if failed := sum(process.returncode != 0 for process in started):
            err.print(f"note: {failed} of {counted(number, 'other process')} failed; {said} says why")
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def _show(plan: Plan, study: optuna.Study, result: Mapping[str, Any], best: Path) -> None:
    """Print the best trials, one a line, the importance of the settings, and how to train with the best."""
    from compgcn.run import tune as tuning

    rows = []
    for trial in sorted(tuning.complete(study), key=lambda trial: -(trial.value or 0.0))[:_SHOWN]:
        chosen = tuning.settings_of(trial, plan.space)
        text = "  ".join(write_setting(path, value).replace(" = ", "=") for path, value in chosen.items())
        rows.append((str(trial.number), f"{trial.value:.4f}", text))
    show_table(("trial>", f"valid {plan.goal}>", "settings"), rows)
    counts = ", ".join(f"{result[key]} {key}" for key in ("complete", "pruned", "refused"))
    value = f"best validation {plan.goal} {result['best']['value']:.4f}"
    out.print(f"{counted(result['trials'], 'trial')}: {counts}; {value}")
    if result["running"]:
        whose = "another process trains it, or died on another machine; a larger --trials replaces it"
        out.print(f"{counted(result['running'], 'trial')} did not end: {whose}")
    for path, share in result["importance"].items():
        out.print(f"  {100 * share:3.0f} % of the difference is {path}")
    settings = result["best"]["settings"]
    epochs, final = plan.config(settings).training.epochs, plan.final(settings).training.epochs
    if epochs != final:
        whose = "file" if "training.epochs" in plan.settings else "recipe"
        out.print(f"trials had {counted(epochs, 'epoch')} each; best.toml trains for the {whose}'s {final}")
    out.print(f"train with the best: compgcn train {best} --run-dir {plan.folder / 'best'}")
