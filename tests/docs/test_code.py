"""The code in the pages runs, and says what the package says."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope import specs
from airflow_provider_scope.values import usual_pattern
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, page_id

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = ROOT / "dags_examples" / "example_files_to_delta.py"


def python_of(page: Any) -> list[str]:
    return [block.text for block in blocks(page.read_text(), "python")]


def tasks_of(page: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[Any]]]:
    """Run the Python of a page, block by block, and give each with the tasks that it makes."""
    from airflow.sdk import DAG

    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

    made: list[Any] = []
    add_task = DAG.add_task
    monkeypatch.setattr(DAG, "add_task", lambda dag, task: (made.append(task), add_task(dag, task))[1])
    names: dict[str, Any] = {
        "DeltaIncrementalIngestOperator": DeltaIncrementalIngestOperator,
        "FileSource": specs.FileSource,
    }
    for number, text in enumerate(python_of(page)):
        made.clear()
        with DAG(f"page_{number}", schedule=None):
            exec(compile(text, f"{page.name}, block {number}", "exec"), names)
        yield text, [task for task in made if task.task_type == "DeltaIncrementalIngestOperator"]


ON_SPARK = {"load.md"}
"""``tests/spark`` runs them."""
WITH_PYTHON = pytest.mark.parametrize(
    "page", [page for page in PAGES if python_of(page) and page.name not in ON_SPARK], ids=page_id
)


@WITH_PYTHON
def test_the_python_of_a_page_runs_and_its_operators_become_tasks(page, monkeypatch):
    for text, tasks in tasks_of(page, monkeypatch):
        shown = re.findall(r"DeltaIncrementalIngestOperator(?:\.partial)?\(", text)
        assert len(tasks) == len(shown)


@WITH_PYTHON
def test_the_files_of_an_example_are_those_of_its_format(page, monkeypatch):
    """Else a reader who copies it has a task that succeeds with 0 files."""
    for _, tasks in tasks_of(page, monkeypatch):
        for source in [task.source for task in tasks if isinstance(getattr(task, "source", None), dict)]:
            kind = source.get("format", "sstream")
            patterns = source.get("patterns") or [usual_pattern(kind)]
            name = "a." + {"sstream": "ss", "text": "txt"}.get(kind, kind)
            assert any(re.search(pattern, name) for pattern in patterns)


def test_the_tutorial_quotes_the_example_as_it_is():
    quoted = re.search(r"# \[START \w+\]\n(.*?) *# \[END", EXAMPLE.read_text(), re.DOTALL)
    assert quoted

    assert textwrap.dedent(quoted[1]) in python_of(DOCS / "tutorial.md")


def test_the_example_in_the_readme_is_under_15_lines_and_the_one_of_the_reference():
    (example,) = python_of(ROOT / "README.md")

    assert example.count("\n") < 15
    assert example == python_of(DOCS / "operator.md")[0]


def test_the_pipeline_of_the_tutorial_has_at_most_15_lines():
    (pipeline,) = [text for text in python_of(DOCS / "tutorial.md") if "import DAG" in text]

    assert pipeline.count("\n") <= 15


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_page_names_only_fields_that_the_specs_have(page):
    names = [name for name in specs.__all__ if dataclasses.is_dataclass(getattr(specs, name))]
    named = re.findall(rf"\b({'|'.join(names)})[(.](\w+)(?==|`)", page.read_text())
    fields = {(name, f.name) for name in names for f in dataclasses.fields(getattr(specs, name))}

    assert {*named} <= fields
