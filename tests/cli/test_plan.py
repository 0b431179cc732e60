"""The command `plan`: a table for people, JSON for programs, and one sentence for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toy import Command, graph, refused, write_tsv

SIZES = ("--entities", 10**6, "--relations", 100, "--triples", 10**7)
RATES = {"device": "cuda", "stream": 1e12, "gather": 1e12, "products": 1e13, "call": 1e-5, "network": 1e9}


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"rates": RATES}))
    return path


def test_a_plan_is_a_table_and_says_what_fits(command: Command, rates: Path) -> None:
    shown = command("plan", *SIZES, "--devices", 4, "--memory", 80, "--rates", rates)
    assert shown.code == 0
    for words in ("entity table", "its share", "all of it", "an epoch of", "it fits into 80 GiB"):
        assert words in shown.out
    shown = command("plan", *SIZES, "--encoder", "compgcn", "--memory", 10, "--rates", rates)
    assert shown.code == 1
    assert "it does not fit into 10 GiB; each of these would make it fit:" in shown.out
    assert "--set encoder.name=none" in shown.out


def test_a_plan_of_a_file_is_that_of_the_settings_that_train_takes(
    command: Command, tmp_path: Path, rates: Path
) -> None:
    data = write_tsv(tmp_path / "family.tsv", graph(people=60))
    compared = "`train` compares models for 5 min; --encoder compgcn trains this one\n"
    assert command("plan", data, "--rates", rates).out.endswith(compared)
    assert compared not in command("plan", data, "--rates", rates, "--encoder", "compgcn").out
    shown = command("plan", data, "--rates", rates, "--network", 2, "--model", "complex", "--json")
    found = json.loads(shown.out)
    assert (found["settings"]["decoder"], found["settings"]["dims"]) == ("complex", [512])
    assert found["rates"] == RATES | {"network": 2e9}
    assert found["peak"] == sum(
        part["bytes"] for part in found["parts"] if part["when"] == "always" and not part["host"]
    ) + max(sum(part["bytes"] for part in found["parts"] if part["when"] == when) for when in ("step", "evaluation"))


def test_mistakes_are_one_sentence(command: Command, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("[]")
    refused(command("plan"), "plan takes a graph, or all of --entities, --relations and --triples")
    refused(command("plan", "world", "--entities", 5), "give one or the other")
    refused(command("plan", "--entities", 5, "--triples", 9), "give one or the other")
    refused(command("plan", *SIZES, "--rates", tmp_path / "none.json"), "is no JSON file of rates")
    refused(command("plan", *SIZES, "--rates", tmp_path / "no.json"), "has no rates: expected those")
    most = ("--entities", 10**10, "--relations", 9, "--triples", 10**12)
    refused(command("plan", *most, "--model", "nbfnet"), "not for the conditional model")
    refused(command("plan", *SIZES, "--epochs", 0), "training.epochs = 0 trains nothing to plan; give at least 1")
    refused(command("plan", *SIZES, "--devices", 10**6 + 1), "devices cannot share 1,000,000 entities")
