"""Write the result of one or more runs that differ in their seed alone: `python tools/record.py RUN [RUN ..]`.

One file under `results/<data>/`: the command, the settings, what each seed reached, mean and standard deviation over
seeds, and what it was made with.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from compgcn.config import differences
from compgcn.run import Run, open_run

RESULTS = Path(__file__).parent.parent / "results"


def figures(run: Run) -> dict[str, Any]:
    """What one run reached, without the report on each class."""
    environment = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    found = {split: dict(run.metrics[split]) for split in ("valid", "test") if run.metrics[split]}
    for report in found.values():
        report.pop("by_class", None)
        report["folds"] = [round(fold["accuracy"], 6) for fold in report.get("folds", [])]
    return {
        "seed": environment["seed"],
        "epochs": run.metrics["best_epoch"],
        "seconds": environment["seconds"],
        **({"chosen": run.metrics["chosen"]} if "chosen" in run.metrics else {}),
        **found,
    }


def record(folders: list[str]) -> Path:
    """The file of these runs."""
    runs = sorted((open_run(folder, "cpu") for folder in folders), key=lambda run: run.config.training.seed)
    first = runs[0]
    for run in runs[1:]:
        changed = [line for line in differences(first.config, run.config) if not line.startswith("training.seed")]
        if changed:
            sys.exit(f"{run.path} differs from {first.path} in more than the seed: {'; '.join(changed)}")
    found = [figures(run) for run in runs]
    split = "test" if "test" in found[0] else "valid"
    accuracy = [one[split]["accuracy"] for one in found]
    config, environment = first.config, json.loads((first.path / "environment.json").read_text(encoding="utf-8"))
    baseline = config.classifier.baseline
    chosen = f"--encoder {config.encoder.name}" if baseline is None else f"--baseline {baseline}"
    result = {
        "data": config.data.source,
        "command": f"compgcn train {config.data.source} {chosen} --protocol {config.classifier.protocol} --seed SEED",
        "protocol": config.classifier.protocol,
        "split": split,
        "seeds": [one["seed"] for one in found],
        "accuracy": {
            "mean": statistics.fmean(accuracy),
            "sd_over_seeds": statistics.pstdev(accuracy),
            "sd_over_folds": statistics.fmean(one[split].get("accuracy_sd", 0.0) for one in found),
        },
        "macro_f1": {"mean": statistics.fmean(one[split]["macro_f1"] for one in found)},
        "config": json.loads(config.model_dump_json()),
        "runs": found,
        "environment": environment,
    }
    model = f"{config.encoder.name}-{config.encoder.composition}" if baseline is None else baseline
    path = RESULTS / config.data.source / f"{model}-{config.classifier.protocol}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    print(record(sys.argv[1:]))
