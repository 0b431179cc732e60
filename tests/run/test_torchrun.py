"""Several processes train, resume and answer as one does; if one fails, all end, and one sentence says why."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import launched
from compgcn.run.run import open_run
from compgcn.train.step import Step
from compgcn.train.storage import Split, load_tensors
from launched import DATA, MODELS, dying, launch, report
from toy import ENVIRONMENT, SMALL, Command, Killed, flags, graph, train, write_tsv


def close(found: Any, expected: Any, place: str = "") -> None:
    """The same numbers up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, value in expected.items():
            close(found[key], value, f"{place} {key}")
    else:
        assert found == (pytest.approx(expected, rel=1e-4) if isinstance(expected, float) else expected), place


def losses(folder: Path) -> dict[str, float]:
    """The loss of every epoch."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return {str(event["epoch"]): event["loss"] for event in events if event["event"] == "epoch"}


@pytest.mark.parametrize("gpus", [0, 1, 2], ids=["gloo on CPUs", "gloo on one GPU", "NCCL on two GPUs"])
def test_two_processes_of_which_one_is_killed_end_with_the_answers_of_one(gpus: int, tmp_path: Path) -> None:
    if torch.cuda.device_count() < gpus:
        pytest.skip(f"it takes {gpus} of the GPUs, and there are {torch.cuda.device_count()}")
    more = {"device": "cuda", "precision": "float32", "step": "eager"} if gpus else {"device": "cpu"}
    alone, together = tmp_path / "alone", tmp_path / "together"
    for folder in (alone, together):
        folder.mkdir()
        (folder / "queries.tsv").write_text("p0\tlives\t?\n?\tknows\tp3\np1\t?\tp2\n")
    done = launch(tmp_path, 2, launched.training, together, more, gpus, restarts=1)
    assert done.code == 0, done
    assert done.out == ""
    found = json.loads((together / "report.json").read_text())
    for name, settings in MODELS.items():
        expected = report(train(alone / name, graph(**DATA), **settings, **more))
        close(losses(together / name), losses(alone / name), name)
        close(found[name], expected, name)
        ours, theirs = (pq.read_table(folder / f"{name}.parquet").to_pydict() for folder in (together, alone))
        assert ours["id"] == theirs["id"]
        np.testing.assert_allclose(ours["probability"], theirs["probability"], rtol=1e-3)
        vectors = [np.load(folder / f"{name}.npy") for folder in (together, alone)]
        np.testing.assert_allclose(*vectors, atol=1e-4)
        run, other = (open_run(folder / name, more["device"]) for folder in (together, alone))
        close(run.evaluate("test", by="relation"), expected["parts"])
        assert run.predict("p0", "lives")[0].id == other.predict("p0", "lives")[0].id
    kept = load_tensors(together / "conve/model.safetensors", ["encoder.nodes"], Split(("encoder.nodes",), 3, 11, 16))
    whole = load_tensors(together / "conve/model.safetensors", ["encoder.nodes"])
    assert torch.equal(kept["encoder.nodes"], whole["encoder.nodes"][3:11])  # over two files of eight rows


def test_a_run_goes_on_with_more_and_with_fewer_processes_after_one_fails(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_tsv(tmp_path / "graph.tsv", graph(**DATA))
    words = ["train", str(data), *map(str, flags(SMALL | MODELS["conve"] | {"entity_bias": "true"})), "--run-dir"]
    failed = launch(tmp_path / "failed", 2, launched.command, [*words, str(tmp_path / "run")], 1)
    assert failed.code != 0
    assert failed.err.count("error: the second has failed\n") == 1, failed
    assert failed.err.count("error: ") == 1, failed
    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", dying(Killed()))
        with pytest.raises(Killed):
            command(*words, "run")
    done = launch(tmp_path / "done", 3, launched.command, [*words, str(tmp_path / "run")])
    assert done.code == 0, done
    assert done.out.count("resuming the run") == 1
    assert done.out.count("popularity baseline") == 1
    assert command(*words, "alone").code == 0
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events].count("start") == 3
    ours, theirs = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("run", "alone"))
    close(losses(tmp_path / "run"), losses(tmp_path / "alone"))
    close(ours, theirs)


def test_torchrun_ends_with_one_sentence_about_bad_input(tmp_path: Path) -> None:
    words = f"-m torch.distributed.run --nproc-per-node 2 -m compgcn evaluate {tmp_path / 'none'}".split()
    done = subprocess.run([sys.executable, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1, done.stderr
    assert f"error: there is no run folder {tmp_path / 'none'}\n" in done.stderr
