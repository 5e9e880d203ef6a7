"""Templates with ``render_template_as_native_obj=True``: each field takes what an XComArg could give it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.operators.scope_submit import ScopeSubmitJobOperator
from airflow_provider_scope.sensors.adls_gen1 import AdlsGen1FileSensor
from airflow_provider_scope.specs import (
    CdfSource,
    Checkpoint,
    Cursor,
    FileSource,
    JdbcSource,
    Merge,
    Scd2,
    ScopeEngine,
    SparkEngine,
    TableSource,
    TableSpec,
)
from airflow_provider_scope.triggers.gen1_files import AdlsGen1FilesTrigger

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 12, tzinfo=UTC)
COLUMNS = {"id": "int", "day": "date", "at": "timestamp"}


def files(**more: Any) -> FileSource:
    return FileSource(**{"roots": "/in", "format": "csv", **more})


def by_cursor(**more: Any) -> TableSource:
    return TableSource(table="/source", cursor=Cursor(**{"column": "at", **more}))


def on_scope(**more: Any) -> dict[str, Any]:
    source, table = FileSource(roots="/in"), TableSpec(columns="id int")
    return {"engine": ScopeEngine(**more), "source": source, "table": table}


def rendered(operator: type[Any], arguments: dict[str, Any], *, native: bool = True, **values: Any) -> Any:
    dag = DAG("rendered", schedule=None, render_template_as_native_obj=native)
    task = operator(task_id="task", dag=dag, **arguments)
    task.render_template_fields(values)
    return task


def load(**arguments: Any) -> dict[str, Any]:
    return {"delta_location": "/table", "source": files(), **arguments}


FIELDS: list[tuple[Any, list[Any]]] = [
    # a field with a value -> the arguments; values that the template gives
    (lambda x: {"source": files(roots=x)}, ["/in", ["/in", "/more"]]),
    (lambda x: {"source": {"roots": x, "format": "csv"}}, ["/in", ["/in", "/more"]]),
    (lambda x: {"source": files(patterns=x)}, [None, [r"\.csv$", r"\.txt$"], r"\.csv$"]),
    (lambda x: {"source": files(columns=x)}, [None, [["id", "int"], ["a b", "string"]], "id int"]),
    (lambda x: {"source": files(options=x)}, [None, {"header": "true", "maxColumns": 7}]),
    (lambda x: {"source": files(max_files_per_trigger=x, max_bytes_per_trigger=x)}, [None, 5]),
    (lambda x: {"source": files(safety_buffer_seconds=x)}, [0, 1.5]),
    (lambda x: {"source": files(starting_timestamp=x)}, [None, NOON]),
    (lambda x: {"source": files(fail_on_empty=x)}, [True, False, 1, 0, None]),
    (lambda x: {"source": x}, [{"roots": ["/a", "/b"], "format": "csv", "max_files_per_trigger": 2}]),
    (lambda x: {"source": by_cursor(initial_value=x)}, [None, NOON, date(2026, 1, 1), 7, 1.5]),
    (lambda x: {"source": by_cursor(lag=x)}, [None, 3600, 0.5]),
    (lambda x: {"source": by_cursor(dedup_key=x)}, [None, [], "id", ["id", "at"]]),
    (lambda x: {"source": TableSource(table="/s", cursor=x)}, [{"column": "at", "lag": 5}]),
    (
        lambda x: {"source": JdbcSource(conn_id="c", table="t", cursor={"column": "at"}, options=x)},
        [None, {"fetchsize": 10}],
    ),
    (lambda x: {"source": CdfSource(table="/s", start_version=x, start_timestamp="{{ none }}")}, [None, 4]),
    (lambda x: {"source": CdfSource(table="/s", full_load=x)}, [True, 1, 0]),
    (lambda x: {"table": TableSpec(partition_by=x)}, [None, [], ["day"], ["id", "day"]]),
    (
        lambda x: {"table": TableSpec(columns="id int, day date", partition_by=x)},
        [None, ["day"]],
    ),
    (lambda x: {"table": TableSpec(schema_evolution=x)}, ["add", "widen"]),
    (lambda x: {"table": TableSpec(properties=x, expect=x)}, [None, {"rule": "id > 0"}]),
    (lambda x: {"table": x}, [None, {"partition_by": ["day"]}]),
    (lambda x: {"write": Merge(primary_key=x)}, ["id", ["id", "day"]]),
    (lambda x: {"write": Merge(merge_key=x), "source": files(columns=COLUMNS)}, [None, ["day"]]),
    (
        lambda x: {"write": Merge(primary_key=x), "source": files(columns=COLUMNS)},
        ["id", ["id", "day"]],
    ),
    (
        lambda x: {"write": Merge(primary_key="id", dedup_sort=x), "source": files(columns=COLUMNS)},
        [None, ["at", "desc"], ("at", "asc")],
    ),
    (
        lambda x: {"write": Scd2(validity_column_names=x), "source": files(columns=COLUMNS)},
        [["begins", "ends"]],
    ),
    (
        lambda x: {"write": Scd2(boundary_timestamp=x, active_record_timestamp=x)},
        [None, NOON, date(2026, 1, 1)],
    ),
    (lambda x: {"write": x}, ["append", {"kind": "merge", "primary_key": ["id"]}]),
    (lambda x: {"engine": SparkEngine(conf=x)}, [None, {"spark.executor.cores": 2}]),
    (lambda x: {"engine": SparkEngine(packages=x)}, [None, [], ["a:b:1", "a:c:1"]]),
    (lambda x: {"engine": x}, [None, {"conf": {"spark.executor.cores": 2}}]),
    (lambda x: on_scope(feature_previews=x), [None, ["a:on", "b:on"]]),
    (lambda x: on_scope(au=x), [None, 7]),
    (lambda x: {"checkpoint": Checkpoint(location="/c", retention_files=x)}, [7]),
    (lambda x: {"checkpoint": x}, [None, {"location": "/c"}]),
    (lambda x: {"full_refresh": x}, [True, False, 1, 0, None]),
    (lambda x: {"max_batches_per_run": x}, [None, 3]),
    (lambda x: {"sql_params": x}, [None, {"a": 1, "b": None, "c": "x", "d": True}]),
    (lambda x: {"mode": "data_interval", "window_start": x, "window_end": LATER}, [NOON]),
]
CASES = [(make, value) for make, values in FIELDS for value in values]


@pytest.mark.parametrize(("make", "value"), CASES)
def test_a_template_gives_a_field_of_the_load_what_its_expression_gives(make: Any, value: Any) -> None:
    by_template = rendered(DeltaIncrementalIngestOperator, load(**make("{{ x }}")), x=value)
    by_value = rendered(DeltaIncrementalIngestOperator, load(**make(value)))

    assert by_template.ingest() == by_value.ingest()
    assert by_template.ingest() is not None


@pytest.mark.parametrize("value", [None, True, {"a": "b"}, [], ["/in", None]])
def test_a_value_that_a_field_does_not_take_is_refused_when_the_task_runs(value: Any) -> None:
    task = rendered(DeltaIncrementalIngestOperator, load(source=files(roots="{{ x }}")), x=value)

    with pytest.raises(InputError, match=r"^roots="):
        task.ingest()


def test_a_way_to_grow_that_there_is_not_is_refused_when_the_task_runs() -> None:
    arguments = load(table=TableSpec(schema_evolution="{{ x }}"))
    task = rendered(DeltaIncrementalIngestOperator, arguments, x="grow")

    with pytest.raises(InputError, match="'grow'"):
        task.ingest()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("roots", lambda x: {"source": files(roots=x)}),
        ("patterns", lambda x: {"source": files(patterns=x)}),
        ("primary_key", lambda x: {"write": Merge(primary_key=x)}),
    ],
)
def test_the_text_of_a_list_is_refused_as_a_regular_expression_it_is_found_in_any_name(
    name: str, make: Any
) -> None:
    arguments = load(**make("{{ x }}"))
    task = rendered(DeltaIncrementalIngestOperator, arguments, native=False, x=[r"/a\.csv$", "it's"])

    with pytest.raises(InputError, match=rf"(?s)^{name}=.*render_template_as_native_obj=True"):
        task.ingest()


@pytest.mark.parametrize(
    "make",
    [
        lambda x: {"source": files(max_files_per_trigger=x)},
        lambda x: {"source": CdfSource(table="/s", start_version=x, end_version=x)},
        lambda x: {"max_batches_per_run": x},
    ],
)
def test_the_text_none_is_no_number_where_none_is_allowed(make: Any) -> None:
    by_template = rendered(DeltaIncrementalIngestOperator, load(**make("{{ x }}")), native=False, x=None)

    assert by_template.ingest() == rendered(DeltaIncrementalIngestOperator, load(**make(None))).ingest()


DIGITS = ["20260101", "7", "-7", "1.5", "007", "1.10", "1_000", "0x10", "1e3", "+5", "5 ", "1" * 20]
TEXT_FIELDS: dict[str, Any] = {
    "job_tag": lambda x: on_scope(job_tag=x),
    "scope_conn_id": lambda x: on_scope(scope_conn_id=x),
    "feature_previews": lambda x: on_scope(feature_previews=[x]),
    "spark_conn_id": lambda x: {"engine": SparkEngine(spark_conn_id=x)},
    "conf": lambda x: {"engine": SparkEngine(conf={"spark.some.tag": x})},
    "patterns": lambda x: {"source": files(patterns=x)},
    "options": lambda x: {"source": files(options={"nullValue": x})},
    "cursor": lambda x: {"source": by_cursor(column=x, dedup_key=[x])},
    "table of the source": lambda x: {
        "source": JdbcSource(conn_id=x, table=x, pre_filter_sql=x, cursor={"column": "at"})
    },
    "identifier": lambda x: {"source": CdfSource(table="/s", identifier=x)},
    "primary_key": lambda x: {"write": Merge(primary_key=x)},
    "merge_key": lambda x: {"write": Scd2(merge_key=["id", x])},
    "partition_by": lambda x: {"table": TableSpec(partition_by=x)},
    "properties": lambda x: {"table": TableSpec(properties={"a": x}, expect={"b": x}, quarantine=x)},
}


@pytest.mark.parametrize("name", TEXT_FIELDS)
def test_digits_that_a_template_gives_where_text_is_meant_are_the_text_that_was_rendered(name: str) -> None:
    make, taken = TEXT_FIELDS[name], 0
    for text in DIGITS:
        try:
            by_value = rendered(DeltaIncrementalIngestOperator, load(**make(text))).ingest()
        except InputError:
            continue
        taken += 1
        assert rendered(DeltaIncrementalIngestOperator, load(**make("{{ x }}")), x=text).ingest() == by_value
    number = rendered(DeltaIncrementalIngestOperator, load(**make("{{ x }}")), x=20260101).ingest()
    text = rendered(DeltaIncrementalIngestOperator, load(**make("20260101"))).ingest()

    assert number == text
    assert taken >= 4


@pytest.mark.parametrize("text", DIGITS)
def test_digits_are_the_texts_of_a_job_and_of_a_sensor(text: str) -> None:
    names = ("script", "job_name", "job_tag")
    job = rendered(ScopeSubmitJobOperator, {"script": "x", **dict.fromkeys(names, "{{ x }}")}, x=text)
    job._check()
    assert [getattr(job, name) for name in names] == [text] * 3

    arguments = {"source_roots": "/in", "source_patterns": "{{ x }}"}
    if text != "+5":  # no regular expression
        by_template = rendered(AdlsGen1FileSensor, arguments, x=text)
        by_value = rendered(AdlsGen1FileSensor, {**arguments, "source_patterns": text})
        assert by_template._search() == by_value._search()


@pytest.mark.parametrize("native", [True, False])
def test_times_and_decimals_are_parameters_as_text(native: bool) -> None:
    params = {"at": "{{ at }}", "day": "{{ day }}", "price": "{{ price }}"}
    values = {"at": NOON, "day": date(2026, 1, 1), "price": Decimal("1.50")}

    task = rendered(DeltaIncrementalIngestOperator, load(sql_params=params), native=native, **values)

    as_text = {"at": "2026-01-01 12:00:00+00:00", "day": "2026-01-01"}
    # A text that is a number is one when it is rendered natively.
    assert {k: str(v) for k, v in task.ingest().sql_params.items()} == {**as_text, "price": "1.50"}


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"a"])
def test_a_parameter_that_a_plan_cannot_hold_is_refused_before_the_run(value: Any) -> None:
    with pytest.raises(InputError, match=r"sql_params\['x'\]=.* expected text, a number, a boolean"):
        rendered(DeltaIncrementalIngestOperator, load(sql_params={"x": value}))


@pytest.mark.parametrize("native", [True, False])
def test_a_text_without_a_template_stays_as_it_is(native: bool) -> None:
    options = {"nullValue": "None", "emptyValue": "0", "quote": "''", "lineSep": "\n", "x": "1e3"}
    arguments = load(
        source=files(options=options),
        sql_params={"code": "007", "digits": "42"},
        table=TableSpec(properties={"a": "True"}),
    )

    ingest = rendered(DeltaIncrementalIngestOperator, arguments, native=native).ingest()

    assert ingest.source.options == options
    assert ingest.sql_params == {"code": "007", "digits": "42"}
    assert ingest.table.properties == {"a": "True"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("au", [None, 5]),
        ("priority", [None, 1]),
        ("job_timeout_seconds", [None, 60, 0.5 + 60]),
        ("job_name", [None, "a name"]),
        ("job_tag", [None, "tag"]),
    ],
)
def test_a_template_gives_a_field_of_a_job_what_its_expression_gives(name: str, values: list[Any]) -> None:
    for value in values:
        task = rendered(ScopeSubmitJobOperator, {"script": "1", name: "{{ x }}"}, x=value)

        task._check()
        assert getattr(task, name) == value
        assert task.script == "1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source_roots", "/in"),
        ("source_roots", ["/in", "/more"]),
        ("source_patterns", [r"\.ss$", r"\.csv$"]),
        ("min_files", 3),
        ("min_bytes", None),
        ("modified_after", NOON),
        ("modified_after", None),
        ("newer_than_checkpoint", None),
        ("stable_for_seconds", 0.5),
    ],
)
def test_a_template_gives_a_field_of_the_sensor_what_its_expression_gives(name: str, value: Any) -> None:
    arguments = {"source_roots": "/in"}
    by_template = rendered(AdlsGen1FileSensor, {**arguments, name: "{{ x }}"}, x=value)
    by_value = rendered(AdlsGen1FileSensor, {**arguments, name: value})

    assert by_template._search() == by_value._search()
    trigger = AdlsGen1FilesTrigger(**asdict(by_template._search()))
    assert trigger.serialize() == AdlsGen1FilesTrigger(**asdict(by_value._search())).serialize()
