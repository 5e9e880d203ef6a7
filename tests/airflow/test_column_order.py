"""The order in which columns are declared, on every way from a Dag to the table."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.sdk import DAG, task
from deltalake import DeltaTable
from sqlalchemy import Column, MetaData, Table, create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.pool import NullPool

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, TableSpec
from tests.real_airflow.postgres import PostgresMissingError, postgres, programs

if TYPE_CHECKING:
    from pathlib import Path

ROW = {"id": 1, "name": "Alice", "city": "Berlin"}
COLUMNS = {"id": "bigint", "name": "string", "city": "string"}
DDL = "id bigint, name string, city string"


@pytest.fixture
def landing(tmp_path: Path) -> str:
    """Return a folder with one CSV file that has no header."""
    file = tmp_path / "landing" / "a.csv"
    file.parent.mkdir()
    file.write_text("1,Alice,Berlin\n")
    os.utime(file, (time.time() - 3600,) * 2)
    return str(file.parent)


def source(landing: str, columns: Any) -> dict[str, Any]:
    return {"roots": [landing], "patterns": [r"\.csv$"], "format": "csv", "columns": columns}


def rows(table: Path) -> list[dict[str, Any]]:
    return list(DeltaTable(str(table)).to_pyarrow_table().to_pylist())


def names(table: Path) -> list[str]:
    return [field.name for field in DeltaTable(str(table)).schema().fields]


@pytest.mark.loads
@pytest.mark.spark
def test_a_csv_without_header_is_read_in_the_order_that_a_dict_or_a_spec_declares(run_dag, tmp_path, landing):
    with DAG("order_of_dicts", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="of_a_dict", delta_location=f"{tmp_path}/dict", source=source(landing, COLUMNS)
        )
        DeltaIncrementalIngestOperator(
            task_id="of_a_spec",
            delta_location=f"{tmp_path}/spec",
            source=FileSource(roots=landing, patterns=r"\.csv$", format="csv", columns=COLUMNS),
            table=TableSpec(columns={"name": "string", "id": "bigint", "city": "string"}),
        )

    run = run_dag(dag)

    assert run.state == "success"
    assert rows(tmp_path / "dict") == [ROW]
    assert names(tmp_path / "dict") == ["id", "name", "city"]
    assert rows(tmp_path / "spec") == [ROW]
    assert names(tmp_path / "spec") == ["name", "id", "city"]


@pytest.mark.spark
@pytest.mark.loads
def test_it_is_read_in_the_order_that_a_template_or_an_xcom_declares(run_dag, tmp_path, landing):
    with DAG("order_of_values", schedule=None, params={"columns": DDL}) as dag:

        @task
        def pairs() -> list[list[str]]:
            return [["id", "bigint"], ["name", "string"], ["city", "string"]]

        DeltaIncrementalIngestOperator(
            task_id="of_a_template",
            delta_location=f"{tmp_path}/template",
            source=source(landing, "{{ params.columns }}"),
        )
        DeltaIncrementalIngestOperator(
            task_id="of_an_xcom", delta_location=f"{tmp_path}/xcom", source=source(landing, pairs())
        )

    run = run_dag(dag)

    assert run.state == "success"
    assert rows(tmp_path / "template") == [ROW]
    assert rows(tmp_path / "xcom") == [ROW]


@pytest.mark.spark
@pytest.mark.loads
def test_it_is_read_in_the_order_that_a_mapped_task_declares(run_dag, tmp_path, landing):
    with DAG("order_of_mapped", schedule=None) as dag:
        partial = DeltaIncrementalIngestOperator.partial
        partial(task_id="expand", delta_location=f"{tmp_path}/expand", max_active_tis_per_dag=1).expand(
            source=[source(landing, COLUMNS)]
        )
        partial(task_id="expand_kwargs", max_active_tis_per_dag=1).expand_kwargs(
            [{"delta_location": f"{tmp_path}/kwargs", "source": source(landing, COLUMNS)}]
        )

    run = run_dag(dag)

    assert run.state == "success"
    assert rows(tmp_path / "expand") == [ROW]
    assert rows(tmp_path / "kwargs") == [ROW]


def test_postgresql_sorts_the_keys_of_what_airflow_keeps_as_json():
    """Why a mapping of columns that comes from an XCom or from dag_run.conf is refused."""
    dialect = postgresql.dialect()
    kept = [column.type.dialect_impl(dialect) for column in (XComModel.value, DagRun.conf)]
    assert [isinstance(one, postgresql.JSONB) for one in kept] == [True, True]
    try:
        programs()
    except PostgresMissingError as err:
        pytest.skip(str(err))

    with postgres() as url, create_engine(url, poolclass=NullPool).connect() as connection:
        table = Table("xcom", MetaData(), Column("value", XComModel.value.type))
        table.create(connection)
        connection.execute(table.insert().values(value=COLUMNS))
        (found,) = connection.execute(table.select()).scalars()

    assert list(COLUMNS) == ["id", "name", "city"]
    assert list(found) == ["id", "city", "name"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["field", "argument", "expand", "expand_kwargs", "native template"])
def test_a_mapping_that_an_xcom_or_a_template_gives_is_refused_with_what_to_return(
    run_dag, tmp_path, landing, capsys, way
):
    """PostgreSQL has sorted its keys by then, so no run may depend on the database that is used."""
    location = f"{tmp_path}/table"
    with DAG(
        "order_lost",
        schedule=None,
        params={"columns": COLUMNS},
        render_template_as_native_obj=True,
    ) as dag:

        @task
        def given(value: Any) -> Any:
            return value

        partial = DeltaIncrementalIngestOperator.partial
        if way == "field":
            DeltaIncrementalIngestOperator(
                task_id="ingest", delta_location=location, source=source(landing, given(COLUMNS))
            )
        elif way == "argument":
            DeltaIncrementalIngestOperator(
                task_id="ingest",
                delta_location=location,
                source=source(landing, DDL),
                table=given({"columns": COLUMNS}),
            )
        elif way == "expand":
            partial(task_id="ingest", max_active_tis_per_dag=1, delta_location=location).expand(
                source=given([source(landing, COLUMNS)])
            )
        elif way == "expand_kwargs":
            partial(task_id="ingest", max_active_tis_per_dag=1).expand_kwargs(
                given([{"delta_location": location, "source": source(landing, COLUMNS)}])
            )
        else:
            DeltaIncrementalIngestOperator(
                task_id="ingest", delta_location=location, source=source(landing, "{{ params.columns }}")
            )

    run = run_dag(dag)

    said = capsys.readouterr().out
    assert run.state == "failed"
    argument = "table" if way == "argument" else "source"
    assert f"{argument}.columns={COLUMNS!r} is not valid: expected text or a list" in said
    assert "return text such as 'id bigint, name string'" in said
    assert not DeltaTable.is_deltatable(location)
