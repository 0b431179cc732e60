"""A config's [data] reads the same graph again, so that a run can be resumed from its config alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compgcn.config import Config, Data, configure
from compgcn.data import find, read, read_graphs
from compgcn.errors import InputError

Write = Callable[[str, str | bytes], Path]


def test_every_setting_of_the_data_is_an_argument_of_read_with_the_same_default() -> None:
    arguments = inspect.signature(read).parameters
    for key, field in Data.model_fields.items():
        if key not in ("source", "fingerprint", "node_labels", "top_relations"):  # of collections; after reading
            assert arguments[key].default == field.default, key
    assert set(arguments) - set(Data.model_fields) == {"path", "train", "name"}


def test_graphs_are_found_again_by_their_origin(write: Write) -> None:
    graphs = read_graphs(
        write("g.tsv", "m1\ta\tr\tb\nm2\ta\tr\tb\n"),
        labels=write("l.tsv", "which\tpart\tis\nm1\ttrain\tyes\nm2\ttrain\tno\n"),
        label_columns=("which", "is"),
        nodes=write("n.tsv", "m1\ta\tC\nm1\tb\tN\nm2\ta\tC\nm2\tb\tC\n"),
    )
    settings = {f"data.{key}": value for key, value in graphs.origin.items()}
    config = configure(Config(), {**settings, "task": "graph-classification"})
    assert find(config.data, config.task).fingerprint() == graphs.fingerprint()


def test_three_files_and_their_folder_are_one_graph_and_are_found_again(write: Write, tmp_path: Path) -> None:
    parts = {part: write(f"{part}.tsv", f"#\na\tr\tb\nb\tr\t{part}\n") for part in ("train", "valid", "test")}
    graph, files = read(tmp_path, comment="#", split_seed=3), read(**parts, comment="#")
    assert graph.name == tmp_path.name
    for one in (graph, files):
        config = configure(Config(), {f"data.{key}": value for key, value in one.origin.items()})
        assert find(config.data).fingerprint() == graph.fingerprint() == files.fingerprint()
    write("train.csv", "a,r,b\n")
    with pytest.raises(InputError, match="expected one file each of train, valid and test"):
        read(tmp_path)


def test_a_graph_is_found_again_by_its_origin(write: Write, tmp_path: Path) -> None:
    table = "# x\nyear,who,how,whom\n" + "".join(f"1,n{i},r{i % 2},n{i + 1}\n" for i in range(20))
    np.save(tmp_path / "n.npy", np.ones((21, 2)))
    np.save(tmp_path / "r.npy", np.ones((1, 2)))
    graph = read(
        write("g.csv", table),
        columns=["who", "how", "whom"],
        comment="#",
        exclude=["r1"],
        names=write("names.tsv", "n0\tzero\n"),
        labels=write("l.csv", "kind,of\nred,n0\nblue,n1\nblue,n2\n"),
        test_labels=write("t.csv", "kind,of\nred,n3\n"),
        label_columns=("of", "kind"),
        relation_features=tmp_path / "r.npy",
        split_seed=3,
        valid_fraction=0.5,
    )
    config = configure(Config(), {f"data.{key}": value for key, value in graph.origin.items()})
    again = find(config.data)
    assert again.fingerprint() == graph.fingerprint()
    assert again.notes == graph.notes
    assert again.entities.names == graph.entities.names


@pytest.mark.parametrize("setting", [{"columns": (0, 1, 2)}, {"labels": "x.tsv"}, {"exclude": ("r",)}, {"names": "x"}])
def test_a_data_set_known_by_name_takes_no_such_option(setting: dict[str, object]) -> None:
    (key,) = setting
    with pytest.raises(InputError, match=f"read in its own way.*; leave {key} out"):
        find(Data(source="world", **setting))
