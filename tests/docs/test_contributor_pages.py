"""What contributors read about the layout, the layers and the steps is what is there."""

from __future__ import annotations

import importlib
import re
import tomllib

from airflow_provider_scope.execution.micro_batch import MicroBatchExecution
from tests.docs.pages import DOCS, ROOT, code, rows, section


def test_every_make_target_is_documented():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    table = rows(section(ROOT / "CONTRIBUTING.md", "## Build"))

    assert sorted(code(row[0])[0] for row in table) == sorted(f"make {target}" for target in targets)


def test_every_folder_of_the_tests_is_documented():
    folders = {f"tests/{test.parent.name}" for test in (ROOT / "tests").glob("*/test_*.py")}
    table = rows(section(ROOT / "CONTRIBUTING.md", "## Tests"))

    assert {code(row[0])[0] for row in table} >= folders


def test_the_layers_are_those_of_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [name.strip() for layer in contracts[0]["layers"] for name in layer.split("|")]
    table = rows(section(DOCS / "architecture.md", "## Layers"))

    assert [code(row[0])[0].removesuffix(".py") for row in table] == layers


def test_every_function_that_decides_exists():
    missing = []
    for row in rows(section(DOCS / "architecture.md", "## Where a decision lives")):
        first, *others = code(row[1])
        module, _, name = first.rpartition(".")
        found = importlib.import_module(f"airflow_provider_scope.{module}")
        missing += [n for n in (name, *others) if not callable(getattr(found, n, None))]

    assert missing == []


def test_the_steps_of_a_run_are_those_of_the_class_that_runs_it():
    steps = re.findall(r"^ {4}(\d)\. (\w+)[ .]", MicroBatchExecution.__doc__ or "", re.MULTILINE)
    shown = re.findall(
        r"^(\d)\. \*\*(\w+)\.\*\*", section(DOCS / "exactly_once.md", "## The steps of a run"), re.MULTILINE
    )

    assert [number for number, _ in shown] == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert shown == steps
