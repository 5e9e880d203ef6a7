"""The page about the sensor says what the code does."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

from airflow_provider_scope.sensors.adls_gen1 import BACKSTOP_SECONDS, AdlsGen1FileSensor
from airflow_provider_scope.triggers.gen1_files import AdlsGen1FilesTrigger
from airflow_provider_scope.waiting import FIRST_RETRY_SECONDS, TRIES, next_look
from tests.docs.pages import DOCS, ROOT, blocks, code, rows, section

PAGE = DOCS / "sensor.md"
EXAMPLE = ROOT / "dags_examples" / "example_adls_gen1_sensor.py"


def arguments(kind: Any) -> dict[str, Any]:
    parameters = inspect.signature(inspect.unwrap(kind.__init__)).parameters
    return {name: parameters[name].default for name in parameters if name not in ("self", "kwargs")}


def default_of(cell: str) -> Any:
    return inspect.Parameter.empty if cell == "required" else ast.literal_eval(cell.strip("`"))


def test_the_arguments_are_documented_in_order_with_their_defaults():
    documented = {code(row[0])[0]: row[1] for row in rows(section(PAGE, "## Arguments"))}
    defaults = arguments(AdlsGen1FileSensor)

    assert list(documented) == list(defaults)
    assert documented.pop("deferrable") == "`[operators] default_deferrable`"
    assert {name: default_of(cell) for name, cell in documented.items()} == {
        name: defaults[name] for name in documented
    }


def test_the_trigger_takes_the_arguments_of_the_sensor_with_the_same_defaults():
    sensor, trigger = arguments(AdlsGen1FileSensor), arguments(AdlsGen1FilesTrigger)

    assert [name for name in trigger if name not in sensor] == ["poll_interval", "deadline"]
    assert [name for name in sensor if name not in trigger] == ["deferrable"]
    assert {name: value for name, value in trigger.items() if name in sensor} == {
        name: value for name, value in sensor.items() if name in trigger
    }


def test_every_argument_of_the_sensor_but_deferrable_is_a_template():
    assert list(AdlsGen1FileSensor.template_fields) == list(arguments(AdlsGen1FileSensor))[:-1]


def test_the_page_quotes_the_example_whose_operators_have_under_15_lines():
    quoted = re.search(r"# \[START \w+\]\n(.*?) *# \[END", EXAMPLE.read_text(), re.DOTALL)
    assert quoted

    assert quoted[1] in blocks(PAGE.read_text(), "python")[0].text
    assert textwrap.dedent(quoted[1]).count("\n") < 15


def test_the_example_is_a_sensor_before_a_load():
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=str(EXAMPLE), bundle_name="dags-folder")

    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    assert {task.task_id: list(task.downstream_task_ids) for task in dag.tasks} == {
        "wait_for_orders": ["load_orders"],
        "load_orders": [],
    }


def test_the_keys_of_the_result_are_documented():
    from airflow_provider_scope.sources.files.discovery import absent

    documented = [code(row[0])[0] for row in rows(section(PAGE, "## What it returns"))]

    assert documented == list(absent("").to_xcom())


def test_the_times_in_the_page_are_those_of_the_code():
    waits = [next_look(failures=failures).seconds for failures in range(1, TRIES)]

    assert (waits, FIRST_RETRY_SECONDS, BACKSTOP_SECONDS) == ([10, 20, 40, 80], 10, 120)
    assert "after 10, 20, 40 and 80 s" in PAGE.read_text()
