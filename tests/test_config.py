"""Settings: strict, by section or by key, and the same after a round trip through TOML."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from compgcn import config as configuration
from compgcn.config import Config, configure, differences, parse_setting, read_config, to_toml
from compgcn.errors import InputError

# No surrogates: a TOML file is UTF-8.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)

SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "data.source": TEXT,
        "data.valid": st.none() | TEXT,
        "encoder": TEXT,
        "composition": st.none() | TEXT,
        "dims": st.lists(st.integers(1, 9999), min_size=1, max_size=4).map(tuple),
        "bias": st.booleans(),
        "lr": st.floats(1e-300, 1e300),
        "margin": st.floats(-1e9, 1e9),
        "grad_clip": st.none() | st.floats(1e-9, 1e9),
        "encoder.hidden_dropout": st.floats(0, 1, exclude_max=True),
        "seed": st.integers(0, 2**63 - 1),
        "loss": st.sampled_from(["bce", "cross-entropy", "margin", "self-adversarial"]),
    },
)


@given(SETTINGS)
@example({"data.source": '"\\ a"b\\c \U000e0001 \u2028 \x7f\x00\x1f tab\tnew\nline Ünï'})
def test_toml_gives_back_what_was_written(settings: dict[str, Any]) -> None:
    config = configure(Config(), settings)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        assert read_config(path) == config


def test_toml_names_every_setting_that_is_set() -> None:
    tree = tomllib.loads(to_toml(Config()))
    dumped = Config().model_dump(exclude_none=True)
    assert {name: sorted(table) for name, table in tree.items() if isinstance(table, dict)} == {
        name: sorted(table) for name, table in dumped.items() if isinstance(table, dict)
    }
    assert tree["format"] == configuration.FORMAT


def test_a_key_works_with_and_without_its_section_and_a_section_stands_for_its_name() -> None:
    config = configure(Config(), {"lr": 0.5, "encoder": "rgcn", "decoder": "transe"})
    assert config == configure(Config(), {"training.lr": 0.5, "encoder.name": "rgcn", "decoder.name": "transe"})
    assert (config.training.lr, config.encoder.name, config.decoder.name) == (0.5, "rgcn", "transe")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"learning_rat": 1}, "unknown option 'learning_rat'"),
        ({"training.lrr": 1}, "unknown option 'training.lrr'; did you mean 'training.lr'"),
        ({"epoch": 1}, "did you mean 'training.epochs'"),
        ({"learning_rate": 3}, "unknown option 'learning_rate'; did you mean 'training.lr'?"),
        ({"training.optimizer": "adam"}, "did you mean 'training.optimiser'?"),
        ({"lr": "fast"}, "training.lr = 'fast': this should be a valid number"),
        ({"lr": -1}, "training.lr = -1: this should be greater than 0"),
        ({"lr": float("nan")}, "training.lr = nan"),
        ({"precision": "tf3"}, "unknown value of training.precision 'tf3'; did you mean 'tf32'"),
        (
            {"task": "node-clasification"},
            "unknown value of task 'node-clasification'; did you mean 'node-classification'",
        ),
        ({"dims": []}, "encoder.dims = (): this should have at least 1 item"),
        ({"exclude": "year"}, 'this should be a list, as in data.exclude = ["year", "rating"]'),
        ({"dims": 100}, "encoder.dims = 100: this should be a list, as in encoder.dims = [100, 200]"),
        ({"dims": [8, 0]}, "encoder.dims.1 = 0: this should be greater than or equal to 1"),
        ({"epochs": 1.5}, "training.epochs = 1.5: this should be a valid integer"),
        ({"bias": "yes"}, "encoder.bias = 'yes'"),
        ({"seed": -1}, "training.seed = -1"),
        ({"data": "x"}, "data = 'x'"),
        ({"data.source": "caf\udce9.tsv"}, "data.source"),  # which UTF-8 cannot hold
        ({"candidates": [{"training.grad_clip": None}]}, "training.grad_clip = None in a candidate"),
        ({"name": "x"}, "'name' is ambiguous; say encoder.name or decoder.name"),
        ({"hidden_dropout": 0.1}, "'hidden_dropout' is ambiguous; say encoder.hidden_dropout or decoder.hidden_"),
        ({"encoder": 3}, "encoder.name = 3"),
    ],
)
def test_what_is_wrong_with_a_setting_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        configure(Config(), settings)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[trainng]\nlr = 1", "unknown option 'trainng'; did you mean 'training'"),
        ("[training]\nlrr = 1", "unknown option 'training.lrr'; did you mean 'training.lr'"),
        ("training = 3", "training = 3"),
        ("lr = 3", "'lr' belongs into the table [training]"),
        ("[training", "is not a TOML file"),
        ("format = 99", "is of format 99, and this version of compgcn reads 1"),
        ("format = 'x'", "is of format 'x'"),
    ],
)
def test_what_is_wrong_in_a_toml_is_one_sentence_that_names_the_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert sentence in str(caught.value)
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None], ids=["bytes", "folder"])
def test_a_toml_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "mine.toml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.toml is not a TOML file"):
        read_config(path)
    with pytest.raises(InputError, match="there is no config file"):
        read_config(tmp_path / "nothing.toml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=0.5", 0.5),
        ("a=1e-3", 1e-3),
        ("a=true", True),
        ("a=[8, 16]", [8, 16]),
        ("a='7'", "7"),
        ("a=cosine", "cosine"),
        ("a=", ""),
        (" a = x=y ", "x=y"),
        ("a=1\nb=2", "1\nb=2"),
    ],
)
def test_a_setting_of_a_command_line_is_toml_or_else_text(text: str, value: object) -> None:
    assert parse_setting(text) == ("a", value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("exclude=year", ["year"]),
        ("exclude=year, born in", ["year", "born in"]),
        ("exclude=1999", ["1999"]),
        ("exclude=true, 1.50", ["true", "1.50"]),
        ('exclude=["a, b", "c"]', ["a, b", "c"]),
        ("dims=100", [100]),
        ("encoder.dims=100,200", [100, 200]),
        ("encoder.dims=[100,200]", [100, 200]),
        ("columns=film,rel,other", ["film", "rel", "other"]),
        ("columns=0,2,3", [0, 2, 3]),
        ("candidates={lr = 0.1, encoder.bias = true}", [{"lr": 0.1, "encoder": {"bias": True}}]),
        ("source=a,b", "a,b"),
    ],
)
def test_a_list_of_a_command_line_is_one_value_or_values_with_commas_between(text: str, value: object) -> None:
    assert parse_setting(text)[1] == value


def test_every_setting_that_is_a_list_has_an_example_that_is_one() -> None:
    config = Config()
    lists = {path for path in configuration.PATHS.values() if "." in path and "tuple" in str(_annotation(path))}
    assert set(configuration.LISTS) == lists
    for path, shown in configuration.LISTS.items():
        configure(config, dict([parse_setting(f"{path}={shown}")]))


@pytest.mark.parametrize("value", [(32, 32), [32, 32], np.float64(0.5), torch.tensor(2), "a", True])
def test_a_candidate_is_the_same_after_it_is_written_and_read(value: Any, tmp_path: Path) -> None:
    config = configure(Config(), {"candidates": [{"encoder.dims": value}, {"encoder": {"dims": value}}]})
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert differences(read_config(tmp_path / "config.toml"), config) == []


def _annotation(path: str) -> object:
    section, _, key = path.partition(".")
    return type(getattr(Config(), section)).model_fields[key].annotation


def test_what_settings_are_called_elsewhere_is_no_name_of_ours_and_stands_for_one_that_is() -> None:
    assert not configuration._CALLED.keys() & configuration.PATHS.keys()
    assert set(configuration._CALLED.values()) <= set(configuration.PATHS)


@pytest.mark.parametrize("text", ["lr", "=3", ""])
def test_a_setting_needs_a_key_and_a_value(text: str) -> None:
    with pytest.raises(InputError, match=r"write key=value, such as training\.lr=0\.001"):
        parse_setting(text)


def test_numbers_of_array_libraries_are_taken_as_numbers() -> None:
    given = {"lr": np.float32(0.5), "seed": np.int64(3), "dims": np.array([4, 8]), "bias": np.bool_(True)}
    config = configure(Config(), given | {"epochs": torch.tensor(7)})
    assert config == configure(Config(), {"lr": 0.5, "seed": 3, "dims": (4, 8), "bias": True, "epochs": 7})
    assert "np." not in to_toml(config)


def test_differences_name_section_key_and_both_values() -> None:
    old = configure(Config(), {"lr": 0.5, "encoder": "gcn"})
    assert differences(old, old) == []
    assert differences(Config(), old) == ["encoder.name: 'compgcn' -> 'gcn'", "training.lr: 0.001 -> 0.5"]
