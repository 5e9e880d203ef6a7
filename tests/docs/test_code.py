"""The code in the pages runs, and says what the package says."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from typing import Any

import pytest

from airflow_provider_scope import specs
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, page_id

EXAMPLE = ROOT / "dags_examples" / "example_files_to_delta.py"


def python_of(page: Any) -> list[str]:
    return [block.text for block in blocks(page.read_text(), "python")]


@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page)], ids=page_id)
def test_the_python_of_a_page_runs_and_its_operators_become_tasks(page, monkeypatch):
    from airflow.sdk import DAG

    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

    made: list[str] = []
    add_task = DAG.add_task
    monkeypatch.setattr(
        DAG, "add_task", lambda dag, task: (made.append(task.task_type), add_task(dag, task))[1]
    )
    names: dict[str, Any] = {
        "DeltaIncrementalIngestOperator": DeltaIncrementalIngestOperator,
        "FileSource": specs.FileSource,
    }
    for number, text in enumerate(python_of(page)):
        made.clear()
        with DAG(f"page_{number}", schedule=None):
            exec(compile(text, f"{page.name}, block {number}", "exec"), names)
        shown = re.findall(r"DeltaIncrementalIngestOperator(?:\.partial)?\(", text)
        assert made.count("DeltaIncrementalIngestOperator") == len(shown)


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
