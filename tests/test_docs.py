"""The documents are right: their code and commands run, their tables equal the source, their links resolve."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import typer

from compgcn import config
from compgcn.answers.calibrate import Scaling, Weighing
from compgcn.answers.export import ENDINGS
from compgcn.answers.export import FORMATS as EXPORTS
from compgcn.baselines import BASELINES
from compgcn.cli import app, main
from compgcn.data import DATASETS
from compgcn.data.datasets import OWN_RECIPES
from compgcn.data.download import FILES
from compgcn.nn.compose import COMPOSITIONS, LEARNED
from compgcn.nn.decoders import DECODERS
from compgcn.nn.encoder import PRESETS
from compgcn.nn.filters import FILTERS
from compgcn.nn.graph import NORMS
from compgcn.run.protocols import PROTOCOLS
from compgcn.tasks.classification import NAMES as READOUTS
from compgcn.tasks.inputs import INPUTS
from compgcn.tasks.losses import SMOOTHING_FLOORS
from compgcn.tasks.objectives import OBJECTIVES, REGULARISERS
from compgcn.tasks.sampling import SAMPLERS
from compgcn.train.recipes import MODELS
from reproduction.__main__ import app as reproduction
from toy import Command

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
REPORTS = sorted((ROOT / "reproduction" / "results").glob("*/report.md"))
README, USE = ROOT / "README.md", ROOT / "docs" / "use.md"
CLASSIFICATION, COMMANDS, DATA, FORMATS, MODELS_PAGE, SETTINGS = (
    ROOT / "docs" / f"{name}.md" for name in ("classification", "commands", "data", "formats", "models", "settings")
)
REGISTRIES = (COMPOSITIONS, LEARNED, DECODERS, PRESETS, DATASETS, NORMS, FILTERS, MODELS, BASELINES)

# Lines of shell blocks that are not run; tests/serve has those of curl, and tests/run those of torchrun.
EXEMPT = ("make", "pip", "git", "cd", "curl", "torchrun")

EVERY_DOCUMENT = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


class Block(NamedTuple):
    """A fenced block: the words after the fence, its text, and the line it starts on."""

    info: list[str]
    text: str
    line: int


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(m[1].split(), m[2], text[: m.start()].count("\n") + 2) for m in found]


def environment() -> dict[str, str]:
    """Return variables for a process: one thread, and the folder of `reproduction` on its path."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error",
        "PYTHONPATH": path,
    }


@functools.cache
def runner() -> str:
    """Start a process that runs commands until this one ends; return its socket."""
    place = tempfile.mkdtemp()
    arguments = [sys.executable, ROOT / "tests" / "typed.py", f"{place}/socket"]
    process = subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, text=True)
    atexit.register(shutil.rmtree, place)
    atexit.register(process.kill)
    assert process.stdout.readline() == "ready\n"
    return f"{place}/socket"


def shell(text: str, folder: Path) -> str:
    """Run a block as a user types it, with the `compgcn` and `python -m reproduction` under test; return its stdout.

    A search that is given a minute has six seconds.
    """
    text = re.sub(r"--minutes 1\b", "--minutes 0.1", text)
    lines = [line for line in text.splitlines() if line.split(" ", 1)[0] not in EXEMPT]
    typed = '"$COMPGCN_PYTHON" -S "$COMPGCN_TYPED" "$COMPGCN_SOCKET"'
    programs = [f'compgcn() {{ {typed} compgcn "$@"; }}', f'python() {{ shift 2; {typed} reproduction "$@"; }}']
    script = "\n".join([*programs, *lines])
    variables = {
        **environment(),
        "COMPGCN_PYTHON": sys.executable,
        "COMPGCN_TYPED": str(ROOT / "tests" / "typed.py"),
        "COMPGCN_SOCKET": runner(),
    }
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run_blocks(page: Path, folder: Path, names: dict[str, Any]) -> None:
    """Run the commands and the code of a page in a folder, the present one for code."""
    for block in blocks(page):
        match block.info:
            case ["bash"]:
                shell(block.text, folder)
            case ["python"]:
                source = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the document
                exec(compile(source, str(page), "exec"), names)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The graph and the run of the front page, and the names of its code."""
    folder, names = tmp_path_factory.mktemp("begun"), {"__name__": "__main__"}
    with contextlib.chdir(folder):
        run_blocks(USE, folder, names)
    return folder, names


@pytest.mark.usefixtures("one_thread")
@EVERY_DOCUMENT
def test_every_block_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    before = [dict(table) for table in REGISTRIES]
    names: dict[str, Any] = {"__name__": "__main__"}
    if path != USE and any("family" in block.text for block in blocks(path)):  # it goes on where the front page ends
        folder, names = request.getfixturevalue("begun")
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    run_blocks(path, tmp_path, dict(names))
    assert [dict(table) for table in REGISTRIES] == before


def test_every_block_has_a_kind_and_none_is_left_unrun() -> None:
    kinds = {(path.name, block.line): block.info for path in DOCUMENTS for block in blocks(path)}
    known = {"bash", "python", "text", "json", "bibtex"}
    assert [place for place, info in kinds.items() if not info or info[0] not in known] == []
    assert [place for place, info in kinds.items() if info[0] in ("bash", "python") and len(info) > 1] == []
    assert sum(info == ["bash"] for info in kinds.values()) >= 15
    assert sum(info == ["python"] for info in kinds.values()) >= 10


def prose(path: Path) -> str:
    """Return a document without its blocks, whose `#` and brackets are no headings and links."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(path: Path) -> list[str]:
    """Return the link targets of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def leads_somewhere(target: str, path: Path) -> bool:
    """Tell whether a link leads to an existing file and, if it names a heading, to exactly one."""
    file, _, anchor = target.partition("#")
    there = (path.parent / file).resolve() if file else path
    return there.exists() and (not anchor or anchors(there).count(anchor) == 1)


@pytest.mark.parametrize("path", [*DOCUMENTS, *REPORTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    broken = [one for one in targets if not one.startswith("https://") and not leads_somewhere(one, path)]
    assert broken == []


def test_every_page_that_the_source_names_exists() -> None:
    places = [file for folder in ("src", "tests", "tools", "examples") for file in (ROOT / folder).rglob("*")]
    kinds = (".py", ".js", ".html", ".json", ".toml")
    for file in [ROOT / "Makefile", ROOT / "pyproject.toml", *(one for one in places if one.suffix in kinds)]:
        for target in re.findall(r"\bdocs/[\w-]+\.md(?:#[\w-]+)?", file.read_text(encoding="utf-8")):
            assert leads_somewhere(target, README), f"{file.relative_to(ROOT)}: {target}"


def test_the_front_page_is_short_and_leads_to_every_other() -> None:
    text = USE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {USE.name} <= linked


# Tables, found by the comment above them


def table(path: Path, mark: str) -> list[list[str]]:
    """Return the cells of the table below `<!-- mark -->`, without its header."""
    _, found, rest = path.read_text(encoding="utf-8").partition(f"<!-- {mark} -->\n")
    assert found, f"{path.name} has no table marked '{mark}'"
    rows = [line for line in rest.split("\n\n", 1)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows[2:]]


def code(cell: str) -> list[str]:
    """Return the words in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def test_every_module_there_is_to_read_exists_and_is_named_once() -> None:
    named = [name for row in table(ROOT / "CONTRIBUTING.md", "table: reading") for cell in row for name in code(cell)]
    assert [name for name in named if importlib.util.find_spec(f"compgcn.{name}") is None] == []
    assert len(set(named)) == len(named) > 9


@pytest.mark.parametrize(
    ("mark", "registry"),
    [
        ("compositions", COMPOSITIONS),
        ("learned compositions", LEARNED),
        ("layers", PRESETS),
        ("norms", NORMS),
        ("decoders", DECODERS),
        ("losses", OBJECTIVES),
        ("smoothing floors", SMOOTHING_FLOORS),
        ("samplers", SAMPLERS),
        ("regularisers", REGULARISERS),
        ("inputs", INPUTS),
        ("readouts", dict.fromkeys(READOUTS)),
        ("baselines", BASELINES),
        ("protocols", PROTOCOLS),
    ],
)
def test_the_tables_of_the_model_equal_the_registries(mark: str, registry: dict[str, Any]) -> None:
    assert [code(row[0]) for row in table(MODELS_PAGE, f"table: {mark}")] == [[name] for name in registry]


def test_the_tables_of_encoders_decoders_and_baselines_have_their_properties() -> None:
    found = {code(row[0])[0]: [code(cell) for cell in row[1:5]] for row in table(MODELS_PAGE, "table: encoders")}
    assert found == {
        name: [[row.composition] if row.composition else [], [row.filters], [row.relations], [row.norm]]
        for name, row in PRESETS.items()
    }
    biases = {code(row[0])[0]: row[3] for row in table(MODELS_PAGE, "table: decoders")}
    assert biases == {name: "yes" if row.entity_bias else "no" for name, row in DECODERS.items()}
    kinds = {"nodes": "node-classification", "graphs": "graph-classification"}
    baselines = {code(row[0])[0]: (kinds[row[1]], *row[2:]) for row in table(CLASSIFICATION, "table: baselines")}
    assert baselines == {name: (row.task, row.description, row.reference) for name, row in BASELINES.items()}


def test_every_setting_a_document_names_is_one() -> None:
    sections = "|".join(
        name for name in config.Config.model_fields if name in config.PATHS and name not in ("task", "fingerprint")
    )
    for path in (one for one in DOCUMENTS if one.name != "CHANGELOG.md"):  # it names removed settings
        for word in re.findall(rf"`(({sections})\.\w+)", path.read_text(encoding="utf-8")):
            if word[0] != "data.entities":
                assert word[0] in config.PATHS, f"{path.name}: {word[0]}"


def test_the_table_of_settings_is_complete_and_has_the_defaults() -> None:
    tree = config.Config().model_dump()
    expected = {"task": tree["task"]}
    expected |= {f"{s}.{key}": value for s, t in tree.items() if isinstance(t, dict) for key, value in t.items()}
    rows = [(name, default) for names, default, _ in table(SETTINGS, "settings") for name in code(names)]
    assert [name for name, _ in rows] == list(expected)
    for name, default in rows:
        value = expected[name]
        stated = code(default)
        assert stated == ([] if value is None else [config._toml(value)]), name


OWN = {
    "your own files": "link-prediction",
    "your own labelled nodes": "node-classification",
    "your own graphs": "graph-classification",
}


def test_the_recipes_are_as_documented() -> None:
    found = {}
    for data, cell in table(SETTINGS, "recipes"):
        settings = sorted(code(cell))
        own = data.partition(",")[0]
        found |= dict.fromkeys([*code(data), *([own] if own in OWN else [])], settings)
    recipes = {own: OWN_RECIPES[task] for own, task in OWN.items()} | {
        name: row.recipe for name, row in DATASETS.items()
    }
    expected = {
        name: sorted(f"{key}={config._toml(value)}" for key, value in recipe.items())
        for name, recipe in recipes.items()
    }
    assert found == expected


def test_the_models_are_as_documented() -> None:
    found = {code(name)[0]: [*map(code, cells), what] for name, *cells, what in table(MODELS_PAGE, "models")}
    assert list(found) == list(MODELS)
    for name, row in MODELS.items():
        whole = config.configure(config.Config(), row.settings)
        loss, sampler, regulariser = whole.training.loss, whole.training.sampler, whole.training.regulariser
        minimised = [loss, *([sampler] if OBJECTIVES[loss].samples else []), *({regulariser} - {"none"})]
        what = f"{row.description} ({row.reference})"
        assert found[name] == [[whole.encoder.name], [whole.decoder.name], minimised, what], name


def test_the_mirrors_are_as_documented() -> None:
    found = {
        name: (code(row[1]), re.findall(r"<(.+?)>", row[2]), code(row[3]))
        for row in table(DATA, "mirrors")
        for name in code(row[0])
    }
    assert found == {
        name: (
            [row.folder],
            [archive.address for archive in row.archives if archive.address],
            [archive.file for archive in row.archives if archive.project],
        )
        for name, row in FILES.items()
    }


def test_the_formats_of_an_export_are_as_documented() -> None:
    found = {code(name)[0]: tuple(code(endings)) for name, endings, _ in table(COMMANDS, "table: formats")}
    assert found == {name: tuple(end for end in ENDINGS if ENDINGS[end] == name) for name in EXPORTS}


# Commands


def commands(program: Any, program_name: str) -> dict[str, set[str]]:
    """Return every command by its full name -> its long options."""

    def walk(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
        options = {o for p in command.params if p.param_type_name == "option" for o in (*p.opts, *p.secondary_opts)}
        options -= {"--help"}
        below = getattr(command, "commands", {})
        if options or not below:
            yield name, options
        for child in below:
            yield from walk(below[child], f"{name} {child}")

    return dict(walk(typer.main.get_command(program), program_name))


USED = commands(app, "compgcn")
KNOWN = USED | commands(reproduction, "python -m reproduction")


@pytest.mark.parametrize("name", USED)
def test_the_help_of_every_command_has_an_example(command: Command, name: str) -> None:
    result = command(*name.split()[1:], "--help")
    assert result.code == 0
    assert f"Example: {name}" in " ".join(result.out.split())
    assert not re.search(r"[^]}]\.\.\.\n", result.out), "a summary is cut short"


def test_every_command_and_option_is_documented_and_no_other() -> None:
    documented = [
        (name, sorted(option.split()[0] for row in table(page, f"options: {name}") for option in code(row[0])))
        for page in DOCUMENTS
        for name in re.findall(r"<!-- options: (.+?) -->", page.read_text(encoding="utf-8"))
    ]
    own = {name for name, options in KNOWN.items() if name not in USED and not options}  # without an option
    assert sorted(documented) == sorted((name, sorted(options)) for name, options in KNOWN.items() if name not in own)


def test_every_command_has_a_row_that_leads_to_its_section() -> None:
    """Rows and sections follow the order of the program."""
    rows = [re.fullmatch(r"\[`(.+)`\]\((.*)#(.+)\)", row[0]) for row in table(COMMANDS, "commands")]
    found = [(row[1], row[3]) for row in rows if row]
    assert [name for name, _ in found] == list(USED)[1:]
    assert all(anchor.startswith(name.replace(" ", "-")) for name, anchor in found)
    headings = re.findall(r"^## `(compgcn [a-z ]+?)(?: [A-Z]+)?`$", COMMANDS.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [name for name, _ in found]


def test_every_option_in_a_command_of_a_document_exists() -> None:
    for path in DOCUMENTS:
        for block in blocks(path):
            for line in re.findall(r"^(?:compgcn|python -m reproduction) .+$", block.text, re.MULTILINE):
                name = max((one for one in KNOWN if f"{line} ".startswith(f"{one} ")), key=len)
                used = {word.split("=")[0] for word in line.split() if word.startswith("--")}
                assert used <= KNOWN[name], line


# Shapes


METRICS = dict.fromkeys(("mrr", "mr", "hits@1", "hits@3", "hits@10"), "number")
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "string or null": (str, type(None)),
    "boolean": (bool,),
    "any": (object,),
}


def check(value: Any, shape: Any, where: str = "$") -> None:
    """Check a value against a documented shape."""
    shape = METRICS if shape == "metrics" else shape
    if isinstance(shape, str):
        assert isinstance(value, TYPES[shape]), where
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for item in value:
            check(item, shape[0], f"{where}[]")
    elif any(key.startswith("<") for key in shape):
        for key, item in value.items():
            check(item, next(iter(shape.values())), f"{where}.{key}")
    else:
        expected = {key: kind for key, kind in shape.items() if key != "*"} | (METRICS if "*" in shape else {})
        assert set(value) == set(expected), where
        for key, kind in expected.items():
            check(value[key], kind, f"{where}.{key}")


@pytest.mark.usefixtures("one_thread")
def test_the_json_and_the_events_are_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shapes = {" ".join(block.info[1:]): json.loads(block.text) for block in blocks(FORMATS) if block.info[0] == "json"}
    for page, file in ((USE, "family.tsv"), (CLASSIFICATION, "generations.tsv")):
        shell(next(block.text for block in blocks(page) if f"> {file} <<" in block.text), tmp_path)
    run = "runs/family-compgcn-distmult-0"
    (tmp_path / "queries.tsv").write_text("Finn\tlives_in\t?\n", encoding="utf-8")
    given = {
        "train": "train family.tsv --decoder distmult --epochs 1 --json",
        "plan": "plan family.tsv --devices 2 --memory 1 --json",
        "tune": "tune family.tsv --decoder distmult --trials 1 --epochs 1 --json",
        "evaluate": f"evaluate {run} --json",
        "evaluate --by relation": f"evaluate {run} --by relation --json",
        "evaluate --by side": f"evaluate {run} --by side --json",
        "predict": f"predict {run} --head Finn --relation lives_in --json",
        "predict --queries": f"predict {run} --queries queries.tsv --to answers.csv --json",
        "discover": f"discover {run} --top 3 --json",
        "explain": f"explain {run} Finn lives_in Bergen --json",
        "train, classes": "train family.tsv --labels generations.tsv --epochs 2 --set folds=2 --json",
        "predict, classes": "predict runs/family-compgcn-refit-0 --item David --json",
        "similar": f"similar {run} Finn --json",
        "list": "list --json",
        "data list": "data list --json",
        "data info": "data info family.tsv --json",
        "data fetch": "data fetch world --json",
        "data verify": "data verify --json",
    }
    assert set(shapes) == set(given)
    for name, arguments in given.items():
        app(arguments.split(), standalone_mode=False)
        check(json.loads(capsys.readouterr().out), shapes[name], name)

    lines = (tmp_path / run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    found = {event.pop("event"): list(event) for event in map(json.loads, lines)}
    assert found == {code(name)[0]: code(keys) for name, keys in table(FORMATS, "table: events")}

    made_with = json.loads((tmp_path / run / "environment.json").read_text(encoding="utf-8"))
    keys = {key for names, _ in table(FORMATS, "table: environment") for key in code(names)}
    assert keys == set(made_with)

    fits = {kind: code(keys) for kinds, keys in table(FORMATS, "table: calibration") for kind in code(kinds)}
    assert fits.pop("discoveries") == list(Weighing._fields)
    assert set(map(tuple, fits.values())) == {Scaling._fields}

    files = {code(name)[0].rstrip("/") for name, _ in table(FORMATS, "table: run folder")}
    assert files == {path.name for path in (tmp_path / run).iterdir() if path.name[0] != "."}


@pytest.mark.parametrize(
    ("arguments", "expected"), [("data list", 0), ("train nothing.tsv", 1), ("train --nonsense", 2)]
)
def test_exit_codes_are_as_documented(arguments: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compgcn", *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == expected
