"""``mode="data_interval"`` in Dag runs: catchup, cleared runs, manual runs, and on to the watermark."""

from __future__ import annotations

import importlib.util
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from airflow.sdk import DAG, CronDataIntervalTimetable
from deltalake import DeltaTable

from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.operators import delta_ingest
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource, Replace
from tests.support.stand_in import stand_in

EXAMPLE = Path(__file__).parents[2] / "dags_examples" / "example_files_to_delta_intervals.py"
NEW_YEAR = datetime(2014, 1, 1, tzinfo=UTC)


def land(folder: Path, name: str, modified: datetime, value: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": [value]}), folder / name)
    os.utime(folder / name, (modified.timestamp(), modified.timestamp()))


def values(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["a"].to_pylist())


def files_of(run: Any) -> int:
    assert run.state == "success"
    (ti,) = run.get_task_instances()
    return ti.xcom_pull(task_ids=ti.task_id)["files"]


def example() -> Any:
    spec = importlib.util.spec_from_file_location("example_intervals", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parquet(root: Path, **more: Any) -> FileSource:
    return FileSource(roots=str(root), patterns=r"\.parquet$", format="parquet", **more)


@pytest.mark.parametrize("are_deleted", [True, False])
def test_a_dag_that_changes_from_a_preset_loses_the_interval_of_its_last_run_unless_that_is_deleted(
    airflow_db, tmp_path, are_deleted
):
    """What the error about empty intervals says to do, with Airflow's own creation of runs."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables.base import DataInterval
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType
    from sqlalchemy import delete

    dag_id = f"changes_{are_deleted}"
    january = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 8)]

    def parse(schedule: Any) -> Any:
        with DAG(dag_id, schedule=schedule, start_date=january[0], catchup=True) as dag:
            DeltaIncrementalIngestOperator(
                task_id="ingest",
                mode="data_interval",
                delta_location=str(tmp_path / "table"),
                source=parquet(tmp_path / "landing"),
            )
        bag = DagBag(dag_folder=os.devnull, collect_dags=False, bundle_name="dags-folder")
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "dags-folder", None)
        return DagSerialization.from_dict(DagSerialization.to_dict(dag))

    def next_interval() -> tuple[datetime, datetime]:
        with create_session() as session:
            found = session.get(DagModel, dag_id)
            return found.next_dagrun_data_interval_start, found.next_dagrun_data_interval_end

    dag = parse("@daily")
    for day in january[:5]:
        assert next_interval() == (day, day)
        with pytest.raises(InputError, match="The data interval of this run is empty") as caught:
            delta_ingest.window_of_run({"data_interval_start": day, "data_interval_end": day})
        assert "with catchup=True. Then delete the Dag's runs that failed like this one" in caught.value.do
        dag.create_dagrun(
            run_id=f"scheduled__{day.isoformat()}",
            logical_date=day,
            data_interval=DataInterval(day, day),
            run_after=day,
            run_type=DagRunType.SCHEDULED,
            triggered_by=DagRunTriggeredByType.TIMETABLE,
            state=DagRunState.FAILED,
        )
        parse("@daily")
    if are_deleted:
        with create_session() as session:
            session.execute(delete(DagRun).where(DagRun.dag_id == dag_id))
    parse(CronDataIntervalTimetable("@daily", timezone="UTC"))

    # Otherwise nobody ever loads what came from the first to the fifth of January.
    expected = january[0:2] if are_deleted else january[5:7]
    assert next_interval() == tuple(expected)


@pytest.mark.loads
@pytest.mark.spark
def test_a_year_is_filled_in_and_the_watermark_goes_on_at_its_end_without_a_gap_or_a_double(
    run_dag, tmp_path
):
    landing, second = tmp_path / "landing", timedelta(seconds=1)
    for name, modified, value in (
        ("before", NEW_YEAR - timedelta(days=1) - second, 1),
        ("first", NEW_YEAR - timedelta(days=1), 2),
        ("last", NEW_YEAR - second, 3),
        ("new_year", NEW_YEAR, 4),
        ("after", NEW_YEAR + second, 5),
    ):
        land(landing, f"{name}.parquet", modified, value)
    dags = example()
    conf = {"landing": str(landing), "table": str(tmp_path / "table")}

    # A run by hand gets the interval that ends at its logical date; here that is after the Dag's end.
    dags.backfill.end_date = dags.backfill.get_task("load_day").end_date = None

    def files_of_day(end: datetime) -> int:
        return files_of(run_dag(dags.backfill, logical_date=end, run_conf=conf))

    december_31 = files_of_day(NEW_YEAR)
    land(landing, "late.parquet", NEW_YEAR - timedelta(hours=1), 6)
    again = files_of_day(NEW_YEAR)
    december_30 = files_of_day(NEW_YEAR - timedelta(days=1))
    incremental = files_of(run_dag(dags.incremental, run_conf=conf))
    nothing_new = files_of(run_dag(dags.incremental, run_conf=conf))

    assert (december_31, again, december_30, incremental, nothing_new) == (2, 1, 1, 2, 0)
    assert values(tmp_path / "table") == [1, 2, 3, 4, 5, 6]


@pytest.mark.spark
@pytest.mark.loads
def test_the_rows_of_an_interval_are_replaced_by_a_predicate_with_the_interval(run_dag, tmp_path):
    landing, table = tmp_path / "landing", tmp_path / "table"
    land(landing, "a.parquet", NEW_YEAR, 1)
    with DAG(
        "replaced_interval",
        schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
        start_date=NEW_YEAR,
        catchup=False,
    ) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            mode="data_interval",
            delta_location=str(table),
            source=parquet(landing),
            sql="SELECT a, date_format(source_file_modified, 'yyyy-MM-dd') AS day FROM @data",
            write=Replace(where="day = '{{ data_interval_start.strftime('%Y-%m-%d') }}'"),
        )

    def run_day(number: int) -> Any:
        return run_dag(dag, logical_date=NEW_YEAR + timedelta(days=number))

    run_day(1)
    land(landing, "b.parquet", NEW_YEAR + timedelta(days=1), 2)
    run_day(2)
    (landing / "a.parquet").unlink()
    land(landing, "c.parquet", NEW_YEAR, 3)
    again, empty = run_day(1), run_day(3)

    assert (again.state, empty.state) == ("success", "success")
    assert (files_of(again), files_of(empty)) == (1, 0)
    assert values(table) == [2, 3]


@pytest.mark.parametrize("schedule", [None, "@daily"], ids=["by hand", "a plain cron expression"])
def test_a_run_without_an_interval_fails_and_writes_nothing(run_dag, tmp_path, schedule):
    land(tmp_path / "landing", "a.parquet", NEW_YEAR, 1)
    with DAG("no_interval", schedule=schedule, start_date=NEW_YEAR, catchup=False) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            mode="data_interval",
            delta_location=str(tmp_path / "table"),
            source=parquet(tmp_path / "landing"),
        )

    run = run_dag(dag, logical_date=None if schedule is None else NEW_YEAR + timedelta(days=1))

    assert run.state == "failed"
    assert not (tmp_path / "table").exists()


# ---- one task without a Dag run ------------------------------------------------------------------


def an_operator(**arguments: Any) -> DeltaIncrementalIngestOperator:
    return DeltaIncrementalIngestOperator(
        **{
            "task_id": "ingest",
            "mode": "data_interval",
            "delta_location": "/there/is/no/table",
            "source": parquet(Path("/there/is/no/landing")),
            **arguments,
        }
    )


CONTEXT = {
    "ti": SimpleNamespace(map_index=-1),
    "data_interval_start": NEW_YEAR - timedelta(days=1),
    "data_interval_end": NEW_YEAR,
}


def now_is(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    monkeypatch.setattr(delta_ingest, "now_ms", lambda: int(moment.timestamp()) * 1000)


def test_only_one_task_of_a_watermark_runs_at_a_time_and_as_many_intervals_as_airflow_lets():
    assert an_operator(mode="incremental").max_active_tis_per_dag == 1
    assert an_operator().max_active_tis_per_dag is None


def test_how_many_run_at_a_time_may_be_said_by_the_default_args_of_a_dag():
    with DAG("parallel", schedule=None, default_args={"max_active_tis_per_dag": 3}):
        default = an_operator(mode="incremental", task_id="default")
        own = an_operator(mode="incremental", task_id="own", max_active_tis_per_dag=2)

    assert (default.max_active_tis_per_dag, own.max_active_tis_per_dag) == (3, 2)


def test_the_mode_of_sensors_in_the_default_args_of_a_dag_is_told_where_it_comes_from():
    arguments = {"delta_location": "/table", "source": FileSource(roots="/in", format="parquet")}
    with (
        DAG("with_sensors", schedule=None, default_args={"mode": "reschedule"}),
        pytest.raises(
            InputError, match=r"(?s)mode='reschedule' is not valid.*in the default_args of the Dag"
        ),
    ):
        DeltaIncrementalIngestOperator(task_id="load", **arguments)


class BeganError(Exception):
    """The wait is over."""


def begin(*_: Any) -> Any:
    raise BeganError


@pytest.mark.parametrize("after", [2, 20])
def test_a_deferrable_task_waits_in_the_triggerer_until_the_last_files_are_old_enough(monkeypatch, after):
    now_is(monkeypatch, NEW_YEAR + timedelta(seconds=after))

    with pytest.raises(TaskDeferred) as deferred:
        an_operator(deferrable=True).execute(CONTEXT)

    assert deferred.value.trigger.moment == NEW_YEAR + timedelta(seconds=30)
    assert deferred.value.method_name == "resume_when_over"


@pytest.mark.parametrize(
    ("deferrable", "after", "slept"),
    [(True, 21, [9.0]), (False, 2, [28.0]), (True, 30, []), (False, 3_600, [])],
)
def test_a_wait_too_short_for_the_triggerer_is_a_sleep_in_the_worker(monkeypatch, deferrable, after, slept):
    waits = []
    now_is(monkeypatch, NEW_YEAR + timedelta(seconds=after))
    stand_in(monkeypatch, delta_ingest, time, sleep=waits.append)
    monkeypatch.setattr(assembly, "assemble", begin)
    task = an_operator(deferrable=deferrable)
    monkeypatch.setattr(task, "_run_context", lambda context, resumed: None)

    with pytest.raises(BeganError):
        task.execute(CONTEXT)

    assert waits == slept


def test_a_task_that_comes_back_looks_at_the_time_again(monkeypatch):
    now_is(monkeypatch, NEW_YEAR + timedelta(seconds=30))
    monkeypatch.setattr(assembly, "assemble", begin)
    task = an_operator(deferrable=True)
    monkeypatch.setattr(task, "_run_context", lambda context, resumed: None)

    with pytest.raises(BeganError):
        task.resume_when_over(CONTEXT, NEW_YEAR)


def test_a_wait_for_an_interval_whose_trigger_was_lost_was_no_wait_for_a_job(monkeypatch):
    now_is(monkeypatch, NEW_YEAR + timedelta(seconds=30))
    monkeypatch.setattr(assembly, "assemble", begin)
    task, seen = an_operator(deferrable=True), []
    monkeypatch.setattr(task, "_run_context", lambda context, resumed: seen.append(resumed))
    monkeypatch.setattr(CONTEXT["ti"], "xcom_pull", lambda **_: None, raising=False)

    with pytest.raises(BeganError):
        task.resume_execution("__fail__", {"error": "it broke"}, CONTEXT)

    assert seen == [False]


def test_a_window_that_was_written_out_goes_before_the_data_interval(monkeypatch):
    now_is(monkeypatch, NEW_YEAR + timedelta(days=30))
    seen = []

    def assembled(ingest: Any, run: Any) -> Any:
        seen.append(ingest.window.name)
        raise AirflowFailException

    monkeypatch.setattr(assembly, "assemble", assembled)
    for arguments in (
        {"window_start": "2013-12-01T00:00:00+00:00", "window_end": "2013-12-31T00:00:00+00:00"},
        {},
    ):
        task = an_operator(**arguments)
        monkeypatch.setattr(task, "_run_context", lambda context, resumed: None)
        with pytest.raises(AirflowFailException):
            task.execute(CONTEXT)

    assert seen == [
        "20131201T000000000Z_20131231T000000000Z",
        "20131231T000000000Z_20140101T000000000Z",
    ]


def test_a_window_that_ends_in_the_future_fails_the_task_at_once(monkeypatch):
    now_is(monkeypatch, NEW_YEAR - timedelta(hours=1))

    with pytest.raises(AirflowFailException, match="in the future"):
        an_operator().execute(CONTEXT)
