"""What stands beside measured figures: the machine, the commit, and how the run that was measured was trained."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
from typing import Any

import torch

from compgcn.assembly.settings import expand, recommended
from compgcn.config import names
from compgcn.folder import commit
from compgcn.run import Run

_MADE_WITH = ("compgcn", "commit", "python", "torch", "device", "seed", "time", "seconds")  # of environment.json


def header() -> dict[str, Any]:
    """What figures were measured with."""
    return {
        "hardware": f"{os.cpu_count()} CPU cores, {platform.machine()}",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
    }


def trained(run: Run, data: str | None = None) -> dict[str, Any]:
    """How a run was trained: the command that does it again, every setting, and what it was made with.

    Args:
        run: the run, finished.
        data: what the command names after `train`; by default the name of the data set.
    """
    config = _settings(run.config)
    made = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    words = [f"{path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in changed(run).items()]
    options = [word for setting in words for word in ("--set", setting)]
    return {
        "command": " ".join(["compgcn train", data or run.config.data.source, shlex.join(options)]).strip(),
        "settings": config,
        "environment": {key: made[key] for key in _MADE_WITH},
    }


def changed(run: Run) -> dict[str, Any]:
    """The settings of a run that are not those recommended for its data, by name."""
    usual = _settings(expand(recommended({"data.source": run.config.data.source}, run.data), run.data))
    return {path: value for path, value in _settings(run.config).items() if value != usual[path]}


def _settings(config: Any) -> dict[str, Any]:
    """Every setting but those that say where the data are, by name."""
    found = names(config.model_dump(mode="json"))
    return {path: value for path, value in found.items() if not path.startswith("data.")}
