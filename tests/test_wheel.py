"""The wheel is built, and used with the packages it requires alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("wheel")
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_holds_the_package_its_data_and_their_notice_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = next(archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert {"compgcn/py.typed", "compgcn/data/world.tsv.gz", "compgcn/data/world.NOTICE"} <= set(names)
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert sources <= set(names)
    page = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/compgcn/serve/page").iterdir()}
    assert "compgcn/serve/page/index.html" in page
    assert page <= set(names)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"compgcn"}  # no reproduction
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "Name: compgcn" in about


def test_the_source_distribution_holds_every_document(tmp_path: Path) -> None:
    pytest.importorskip("build")
    words = ["-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    documents = [*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*") if path.is_file())]
    assert {str(path.relative_to(ROOT)) for path in documents} <= names


def required(name: str, found: set[str]) -> set[str]:
    """Return the distributions that one requires without extras, itself included."""
    if name not in found:
        found.add(name)
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                required(canonicalize_name(requirement.name), found)
    return found


def test_the_demo_runs_from_the_wheel_with_the_packages_it_requires_alone(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    bin_, empty = tmp_path / "env" / "bin", tmp_path / "empty"
    empty.mkdir()
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    for name in required("compgcn", set()) - {"compgcn"}:
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    def run(*words: str) -> str:
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRITON_INTERPRET")
        }
        done = subprocess.run([*words], cwd=empty, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    lines = [line for line in (ROOT / "Makefile").read_text().splitlines() if "$(BIN)/compgcn" in line]
    demo = [line.replace("$(DEMO)", "demo").split()[1:] for line in lines]
    demo[0] += ["--epochs", "6"]  # of its 20
    outputs = [run(str(bin_ / "python"), "-m", "compgcn", *words) for words in demo]
    assert "world: 3,090 entities" in outputs[0]
    metrics = json.loads((empty / "demo" / "metrics.json").read_text())
    assert metrics["test"]["mrr"] >= 1.5 * metrics["popularity"]["test"]["mrr"]
    assert len(outputs[-1].splitlines()) >= 5 + 2, "a title, a header and five named predictions"
