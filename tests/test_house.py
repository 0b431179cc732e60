"""The size and the order of the house, each with its budget; run with -s to see the table."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import compgcn
from compgcn.config import Config, Section

ROOT = Path(__file__).parents[1]
PACKAGE = Path(compgcn.__file__).parent

# From the bottom: a module imports from its own package and from those on lower levels.
LEVELS = (
    ("errors",),
    ("config", "kernels", "processes"),
    ("nn",),
    ("data",),
    ("tasks", "train"),
    ("baselines", "answers", "shards"),
    ("run",),
    ("serve",),
    ("cli",),
)
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
CORE = ("errors.py", "config.py", "kernels", "nn", "tasks", "train", "run")
AROUND = ("run/report.py", "run/plots.py", "run/tune.py", "run/plan.py")  # they live in run and are no part of the core
LIGHT = ("compgcn", "compgcn.errors", "compgcn.config", "compgcn.train.recipes", "compgcn.run.plots", "compgcn.cli")
LONGEST = 60  # lines of a function after its signature


def lines(*paths: Path) -> int:
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))}
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def dotted(path: Path) -> str:
    parts = ("compgcn", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that can run: all but those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from running(child)


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports from the package, in functions too."""
    for node in running(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "compgcn")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "compgcn":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(name: str) -> str | None:
    """Return the entry of the package that a dotted name belongs to; None for a name of the package itself."""
    first = name.split(".")[1] if "." in name else ""
    return first if first in LEVEL else None


def settings() -> int:
    sections = [field.annotation for field in Config.model_fields.values()]
    return sum(len(one.model_fields) for one in sections if isinstance(one, type) and issubclass(one, Section))


def closure() -> int:
    """Count the modules that `compgcn train world` loads."""
    code = (
        "import sys; from compgcn.cli import app; sys.argv = ['compgcn', 'train', 'world', '--epochs', '0']\n"
        "try: app()\nexcept SystemExit: pass\n"
        "print('modules', sum(name.split('.')[0] == 'compgcn' for name in sys.modules))"
    )
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def test_the_house_keeps_to_its_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    entries = [path for path in PACKAGE.iterdir() if path.stem in LEVEL]
    core = lines(*(PACKAGE / one for one in CORE)) - lines(*(PACKAGE / one for one in AROUND))
    # Each with its aim and the ceiling it may not exceed; where they differ, the aim is not reached yet. The aim of the
    # source holds 1,200 lines for the conditional model, 1,500 for several processes and 500 for the search.
    found = {
        "lines of src/compgcn": (lines(PACKAGE), 19_200, 24_865),
        "modules": (len(list(PACKAGE.rglob("*.py"))), 110, 110),
        "lines of the core": (core, 8_700, 12_249),
        "lines of reproduction": (lines(ROOT / "reproduction"), 2_500, 3_416),  # the conditional model
        "lines of tests": (lines(ROOT / "tests"), 15_000, 19_905),
        "levels of imports": (len(LEVELS), 9, 9),
        "entries at the top": (len(entries), 12, 14),
        "modules that train loads": (closure(), 70, 69),
        "settings": (settings(), 65, 88),
    }
    with capsys.disabled():
        print(f"\n{'':28}{'now':>8}{'aim':>8}{'ceiling':>9}", end="")  # noqa: T201
        for name, (size, aim, ceiling) in found.items():
            print(f"\n{name:28}{size:>8,}{aim:>8,}{ceiling:>9,}", end="")  # noqa: T201
    assert {name: size for name, (size, _, ceiling) in found.items() if size > ceiling} == {}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=dotted)
def test_a_module_imports_from_lower_levels_alone(path: Path) -> None:
    own = part(dotted(path))
    level = LEVEL.get(own or "", len(LEVELS))
    above = [name for name in imported(path) if (other := part(name)) and other != own and LEVEL[other] >= level]
    assert above == []


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=dotted)
def test_no_function_is_long(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    long = {one.name: (one.end_lineno or 0) - one.body[0].lineno + 1 for one in functions}
    assert {name: size for name, size in long.items() if size > LONGEST} == {}


def test_public_names_are_loaded_when_they_are_used() -> None:
    assert set(compgcn._HOME) | {"__version__"} == set(compgcn.__all__) == set(dir(compgcn))
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        compgcn.lod  # noqa: B018


@pytest.mark.parametrize("module", LIGHT)
def test_the_front_door_opens_without_torch(module: str) -> None:
    code = f"import {module}, sys; heavy = {{'torch', 'numba', 'pyarrow'}} & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True)
