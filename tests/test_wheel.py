"""The wheel: built, unpacked into an empty folder, and put to work from there."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import toy

ROOT = Path(__file__).parent.parent


def _python(folder: Path, *words: str) -> str:
    """Python in an empty folder with nothing of ours but the unpacked wheel."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=toy.ENVIRONMENT | {"PYTHONPATH": str(folder.parent / "site")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("wheel")
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.xdist_group("wheel")
def test_the_wheel_holds_the_package_its_data_and_their_notice_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
    assert {"compgcn/py.typed", "compgcn/data/world.tsv.gz", "compgcn/data/world.NOTICE"} <= set(names)
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert sources <= set(names)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"compgcn"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "Name: compgcn" in metadata


@pytest.mark.xdist_group("wheel")
def test_the_wheel_trains_and_predicts_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    _python(empty, *install, "--root-user-action=ignore", "--target", str(site), str(wheel))
    where = _python(empty, "-c", "import compgcn; print(compgcn.__file__)")
    assert where.strip() == str(site / "compgcn" / "__init__.py")
    settings = toy.flags({"encoder.dims": (4, 8), "filters": 2, "kernel": 2, "batch_size": 1024, "device": "cpu"})
    out = _python(empty, "-m", "compgcn", "train", "world", "--epochs", "1", *settings)
    assert "world: 3,090 entities" in out
    question = ["--head", "France", "--relation", "borders", "--top", "5", "--json"]
    answers = json.loads(_python(empty, "-m", "compgcn", "predict", "runs/world-compgcn-distmult-0", *question))
    assert [row["rank"] for row in answers] == [1, 2, 3, 4, 5]
    assert [path.name for path in empty.iterdir()] == ["runs"]
