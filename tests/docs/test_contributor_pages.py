"""What contributors read about the layout, the layers and the steps is what is there."""

from __future__ import annotations

import importlib
import re
import tomllib
from typing import Any

from airflow_provider_scope.protocol.run import MicroBatchExecution
from airflow_provider_scope.spark.writes import WRITES
from tests.docs.pages import DOCS, ROOT, blocks, code, prose, rows, section


def test_every_make_target_is_documented():
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    table = rows(section(ROOT / "CONTRIBUTING.md", "## Build"))

    assert sorted(code(row[0])[0] for row in table) == sorted(f"make {target}" for target in targets)


def test_every_folder_of_the_tests_is_documented():
    folders = {f"tests/{test.parent.name}" for test in (ROOT / "tests").glob("*/test_*.py")}
    table = rows(section(ROOT / "CONTRIBUTING.md", "## Tests"))

    assert {code(row[0])[0] for row in table} >= folders


def test_the_tests_that_other_versions_and_targets_name_exist():
    from tests.versions.__main__ import TESTS

    named = [*TESTS, *re.findall(r"tests/[\w/]+\.py", (ROOT / "Makefile").read_text())]
    parts = [name.partition("::") for name in named]

    assert [file for file, _, _ in parts if not (ROOT / file).exists()] == []
    assert [test for file, _, test in parts if test and f"def {test}(" not in (ROOT / file).read_text()] == []


def test_what_is_to_be_touched_for_a_write_is_there():
    page = section(ROOT / "CONTRIBUTING.md", "### Add a write")
    named = [name for row in rows(page) for name in code(row[0])]

    assert "spark/writes/" in named
    assert [name for name in named if not (ROOT / "airflow_provider_scope" / name).exists()] == []
    # Else a module beside the others would be a write that nobody can ask for.
    modules = {path.stem for path in (ROOT / "airflow_provider_scope/spark/writes").glob("[!_]*.py")}
    assert {write.__module__.rpartition(".")[2] for write in WRITES.values()} == modules


def layers() -> list[list[str]]:
    """Return the packages of the contract from top to bottom, those of a layer together."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = [re.findall(r"(\w+)(?:\.[\w.]+)?", layer) for layer in contracts[0]["layers"]]
    packages = list(dict.fromkeys(tuple(dict.fromkeys(layer)) for layer in named))
    # The modules of sources and protocol lie between each other.
    return [list(layer) for layer in packages if len(layer) == 1 or {"sources", "protocol"} - {*layer}]


def found(dotted: str) -> Any:
    """Return what a dotted name below the package is; None if it does not exist."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(["airflow_provider_scope", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            value = getattr(value, part, None)
        return value
    return None


def test_the_layers_are_those_of_the_contract():
    table = rows(section(DOCS / "architecture.md", "## Layers"))

    assert [code(row[0])[0].removesuffix(".py") for row in table] == [n for layer in layers() for n in layer]


def test_the_layers_that_are_drawn_are_those_of_the_contract():
    (drawing,) = blocks(section(DOCS / "architecture.md", "## Layers"), "mermaid")
    labels = dict(re.findall(r'(\w+)\["([^"]+)"\]', drawing.text))
    arrows = re.findall(r"^ *(\w+\S* --> .*)$", drawing.text, re.MULTILINE)
    names = [name for line in arrows for name in re.findall(r"(?:^|--> )(\w+)", line)]
    drawn = [labels.get(name, name).split(" · ") for name in dict.fromkeys(names)]

    assert drawn == layers()
    assert arrows[-1] == "hooks --> scope"
    knows_airflow = drawing.text.split("end\n", 1)[0]
    assert "engines --> hooks" in knows_airflow
    assert "scope" not in knows_airflow


def test_every_package_and_module_is_on_the_page():
    text = section(DOCS / "architecture.md", "## Layers")
    parts = (ROOT / "airflow_provider_scope").glob("[!_]*")
    names = {path.name for path in parts if path.suffix == ".py" or (path / "__init__.py").exists()}
    # What Airflow asks a provider for, and what three operators share.
    names -= {"get_provider_info.py", "templates.py"}

    assert names - {word for line in text.splitlines() for word in code(line)} == set()


def test_the_path_through_the_code_names_what_exists_in_at_most_eight_steps():
    page = section(DOCS / "architecture.md", "## From the operator to the Delta commit")
    named = [name for name in code(prose(page)) if "." in name]

    assert 1 <= len(rows(page)) <= 8
    assert all(len(code(row[2])) >= 1 for row in rows(page))
    assert [name for name in named if not callable(found(name))] == []


def test_what_a_deferral_calls_exists():
    from airflow_provider_scope.hooks.scope import ScopeHook
    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
    from airflow_provider_scope.triggers.job import JobTrigger

    (drawing,) = blocks(section(DOCS / "scope.md", "## Waiting"), "mermaid")
    classes = (DeltaIncrementalIngestOperator, ScopeHook, JobTrigger)
    operator, hook, trigger = classes
    called = re.findall(r"->>(\w+): (\w+)\(\)", drawing.text)

    assert re.findall(r"participant (\w+)", drawing.text) == [one.__name__ for one in classes]
    assert {name for place, name in called if place == hook.__name__} == {"submit_job", "get_job"}
    assert all(callable(getattr(hook, name, None)) for place, name in called if place == hook.__name__)
    # The operator makes the trigger and goes on by itself after its event.
    own = [name for place, name in called if place == trigger.__name__]
    own += re.findall(r"Note over \w+: (\w+)\(\)", drawing.text)
    assert own == ["wait_in_triggerer", "execute", "resume"]
    assert all(callable(getattr(operator, name, None)) for name in own)


def test_every_function_that_decides_exists():
    missing = []
    for row in rows(section(DOCS / "architecture.md", "## Where a decision lives")):
        first, *others = code(row[1])
        module = first.rpartition(".")[0]
        names = [first, *(f"{module}.{name}" for name in others)]
        missing += [name for name in names if not callable(found(name))]

    assert missing == []


def test_the_terms_are_at_most_thirty_and_each_is_in_the_code():
    table = rows(section(DOCS / "architecture.md", "## Terms"))
    places = [code(row[2])[0] for row in table]

    assert len({row[0] for row in table}) == len(table) <= 30
    assert [place for place in places if found(place) is None] == []


def test_the_steps_of_a_run_are_those_of_the_class_that_runs_it():
    steps = re.findall(r"^ {4}(\d)\. (\w+)[ .]", MicroBatchExecution.__doc__ or "", re.MULTILINE)
    shown = re.findall(
        r"^(\d)\. \*\*(\w+)\.\*\*", section(DOCS / "exactly_once.md", "## The steps of a run"), re.MULTILINE
    )

    assert [number for number, _ in shown] == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert shown == steps


def test_the_files_to_touch_for_a_source_exist():
    table = rows(section(ROOT / "CONTRIBUTING.md", "### Add a source"))
    named = [name for row in table for name in code(row[0])]

    assert len(table) > 5
    # Each is there for cursors, and what a source of its own needs has the same names.
    assert [name for name in named if not (ROOT / name.replace("<source>", "cursor")).is_file()] == []
