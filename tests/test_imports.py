"""Imports point down only, and the front door opens without torch.

Every import that can run counts, those inside functions too: being late does not turn an arrow round. Imports under
`if TYPE_CHECKING` do not count: they never run. `compgcn` itself holds only names, and anyone may import it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import compgcn

PACKAGE = Path(compgcn.__file__).parent

# From the top; a module may import what stands below its own line, and the rest of its own package.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("serve",),
    ("pages",),
    ("report",),
    ("tables",),
    ("bench", "experiment", "tune"),
    ("plots", "smoke", "claims", "search", "results"),
    ("run",),
    ("assembly",),
    ("answers", "protocols"),
    ("folder", "train"),
    ("records", "storage", "step"),
    ("baselines",),
    ("tasks", "inputs"),
    ("nn",),
    ("encoders", "decoders", "data", "ranking", "losses", "sampling"),
    ("queries", "presets"),
    ("layers",),
    ("tying",),
    ("graph",),
    ("messages",),
    ("norms",),
    ("kernels",),
    ("compose", "dropout", "adagrad", "models", "space"),
    ("config",),
    ("mistakes",),
    ("errors",),
)
HEIGHT = {name: -level for level, names in enumerate(LAYERS) for name in names}
# These import no torch.
LIGHT = ("compgcn", "compgcn.errors", "compgcn.config", "compgcn.config", "compgcn.train.recipes", "compgcn.config")

MODULES = sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    parts = ("compgcn", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def running(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that can run."""
    for child in ast.iter_child_nodes(node):
        if only_for_types(child):
            for other in child.orelse:
                yield from (other, *running(other))
        else:
            yield child
            yield from running(child)


def imported(path: Path) -> Iterator[str]:
    """Dotted names of what a module of the package imports from the package."""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in running(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = package[: len(package) - node.level + 1] if node.level else []
            home = [*home, *(node.module or "").split(".")] if node.module else home
            names = [".".join((*home, alias.name)) for alias in node.names]
        yield from (name for name in names if name.split(".")[0] == "compgcn")


def part(name: str) -> str | None:
    """The module or package directly under compgcn that a dotted name belongs to; None for compgcn's own names."""
    first = name.split(".")[1] if "." in name else ""
    return first if ((PACKAGE / first).is_dir() and first) or (PACKAGE / f"{first}.py").exists() else None


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_imports_only_what_stands_below_it(path):
    own = part(dotted(path))
    if own is None:
        assert not list(imported(path)), "the package itself loads its names when they are used"
        return
    assert own in HEIGHT, f"{own} has no place in LAYERS: give it one"
    for name in imported(path):
        other = part(name)
        if other not in (None, own):
            assert other in HEIGHT, f"{other} has no place in LAYERS: give it one"
            assert HEIGHT[other] < HEIGHT[own], f"{dotted(path)} imports {name}, which does not stand below it"


def test_public_names_live_in_modules_with_a_place():
    assert {home.split(".")[1] for home in compgcn._HOME.values()} <= set(HEIGHT)
    assert set(compgcn._HOME) | {"__version__"} == set(compgcn.__all__) == set(dir(compgcn))


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        compgcn.lod  # noqa: B018


@pytest.mark.parametrize("module", LIGHT)
def test_the_front_door_opens_without_torch(module):
    code = f"import {module}, sys; heavy = {{'torch', 'numba', 'pyarrow'}} & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import compgcn.nn.graph", ["compgcn.nn.graph"]),
        ("from compgcn import graph, layers", ["compgcn.nn.graph", "compgcn.nn.conv"]),
        ("def f():\n    from compgcn.nn.graph import x", ["compgcn.nn.graph.x"]),
        ("from . import numba\nfrom ..graph import x", ["compgcn.kernels.numba", "compgcn.nn.graph.x"]),
        ("if TYPE_CHECKING:\n    import compgcn.run\nelse:\n    import compgcn.nn.graph", ["compgcn.nn.graph"]),
        ("import torch\nfrom numpy import array", []),
    ],
)
def test_every_way_of_importing_is_seen(source, expected, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    path = tmp_path / "kernels" / "made_up.py"
    path.parent.mkdir()
    path.write_text(source)
    assert list(imported(path)) == expected
