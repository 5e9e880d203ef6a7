"""The sensor in real Dag runs, against the emulator over HTTP."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowTaskTimeout
from airflow.sdk import DAG

from airflow_provider_scope.engines.assembly import open_log
from airflow_provider_scope.exceptions import (
    InputError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
)
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.protocol.records import Pipeline
from airflow_provider_scope.sensors import adls_gen1
from airflow_provider_scope.sensors.adls_gen1 import AdlsGen1FileSensor
from airflow_provider_scope.specs import Checkpoint, FileSource, ScopeEngine, TableSpec
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.triggers import gen1_files
from airflow_provider_scope.values import Window
from tests.scope.conftest import ROOT, start_emulator, world
from tests.sensors.conftest import put
from tests.support.dbt_scope import DbtScope
from tests.support.stand_in import stand_in

__all__ = ["start_emulator", "world"]

CONFIRMED = {1: "2001-09-09T01:46:41.000000+00:00", 2: "2001-09-09T01:46:42.000000+00:00"}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """Between two tries of a look, and while the trigger holds."""
    monkeypatch.setattr(AdlsGen1FileSensor, "_sleep", staticmethod(lambda seconds: None))
    monkeypatch.setattr(gen1_files, "SHORTEST_HOLD_SECONDS", 0.1)
    monkeypatch.setattr("airflow_provider_scope.stores.calls.Repeating.pause", lambda *_: None)


@pytest.fixture
def first_look(monkeypatch):
    """Do something after the worker's first look."""
    then = []
    look = adls_gen1.detect_arrival

    def looked(search):
        arrival = look(search)
        if then:
            then.pop(0)()
        return arrival

    monkeypatch.setattr(adls_gen1, "detect_arrival", looked)
    return then.append


def sensor(**more) -> AdlsGen1FileSensor:
    defaults = {"task_id": "wait", "source_roots": ROOT, "poke_interval": 0, "timeout": 20}
    return AdlsGen1FileSensor(**{**defaults, **more})


def waited(run_dag, name, **more):
    """Run a Dag of one sensor; give the task's state and its result."""
    params = more.pop("params", {})
    with DAG(name, schedule=None, params=params) as dag:
        sensor(**more)
    (ti,) = run_dag(dag).get_task_instances()
    return ti.state, ti.xcom_pull(task_ids="wait")


@pytest.mark.parametrize("deferrable", [False, True])
def test_files_that_are_there_end_the_wait_at_once(run_dag, world, deferrable):
    world.open()
    world.land(1, 2)

    state, result = waited(run_dag, f"there_{deferrable}", deferrable=deferrable)

    assert state == "success"
    assert result == {
        "names": [f"{ROOT}/f1.ss", f"{ROOT}/f2.ss"],
        "count": 2,
        "bytes": sum(path.stat().st_size for path in (world.account / "landing").iterdir()),
        "newest": CONFIRMED[2],
    }


@pytest.mark.parametrize("deferrable", [False, True])
def test_files_that_come_later_are_waited_for(run_dag, world, first_look, deferrable):
    world.open()
    world.land(1)
    first_look(lambda: world.land(2))

    state, result = waited(run_dag, f"later_{deferrable}", deferrable=deferrable, min_files=2)

    assert (state, result["count"]) == ("success", 2)


def test_a_deferred_wait_goes_on_in_the_triggerer(run_dag, world, first_look, monkeypatch):
    world.open()
    first_look(lambda: world.land(1))
    waits = []
    wait = gen1_files.AdlsGen1FilesTrigger._wait

    async def watched(self, told):
        event = await wait(self, told)
        waits.append(event[0]["status"])
        return event

    monkeypatch.setattr(gen1_files.AdlsGen1FilesTrigger, "_wait", watched)

    state, result = waited(run_dag, "in_the_triggerer", deferrable=True)

    assert (state, result["names"]) == ("success", [f"{ROOT}/f1.ss"])
    assert waits == ["arrived"]


# ---- missing, refused, failed -----------------------------------------------------------------------


def test_a_missing_folder_may_come_later(run_dag, world, first_look):
    world.open()
    first_look(lambda: world.land(1))

    state, result = waited(run_dag, "missing_waits")

    assert (state, result["count"]) == ("success", 1)


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_missing_folder_may_be_an_error(run_dag, world, deferrable):
    world.open()

    # A wait that ran out would skip the task.
    state, _ = waited(
        run_dag,
        f"missing_fails_{deferrable}",
        deferrable=deferrable,
        missing_root="fail",
        soft_fail=True,
        timeout=1,
    )

    assert state == "failed"


def test_an_error_that_stays_is_raised_by_the_first_look_of_a_deferrable_sensor(world):
    world.open()

    with pytest.raises(SourceNotFoundError, match="does not exist"):
        sensor(deferrable=True, missing_root="fail").execute({})


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ({"denied_paths": ("/landing/day2",)}, SourceRefusedError),
        ({"faults": [{"kind": "status", "op": "liststatus", "status": 401}]}, SourceRefusedError),
        ({"faults": [{"kind": "status", "op": "liststatus", "status": 503}]}, SourceUnreadableError),
        ({"faults": [{"kind": "status", "op": "liststatus", "status": 400}]}, SourceUnreadableError),
        ({"faults": [{"kind": "status", "op": "liststatus", "status": 404}]}, SourceUnreadableError),
        ({"faults": [{"kind": "drop_before", "op": "liststatus"}]}, SourceUnreadableError),
    ],
    ids=["refused", "no token", "unavailable", "not possible", "a 404 that says nothing", "no answer"],
)
def test_what_cannot_be_listed_is_tried_five_times_and_is_an_error_then(world, trouble, error, monkeypatch):
    waits = []
    monkeypatch.setattr(AdlsGen1FileSensor, "_sleep", staticmethod(waits.append))
    monkeypatch.setattr(adls_gen1.random, "random", lambda: 0.0)
    world.open(**trouble)
    world.land(1)
    put(world.account / "landing/day2", "a.ss")

    with pytest.raises(error):
        sensor().poke({})

    assert waits == [10, 20, 40, 80]


@pytest.mark.parametrize("deferrable", [False, True])
def test_what_cannot_be_listed_fails_a_task_that_is_skipped_without_files(
    run_dag, world, deferrable, monkeypatch
):
    monkeypatch.setattr("airflow_provider_scope.waiting.FIRST_RETRY_SECONDS", 0.0)
    world.open(denied_paths=("/landing",))
    world.land(1)

    state, result = waited(run_dag, f"trouble_{deferrable}", deferrable=deferrable, soft_fail=True)

    assert (state, result) == ("failed", None)


def test_an_error_that_stays_fails_and_is_not_skipped_with_soft_fail(world, tmp_path):
    with pytest.raises(InputError, match="different stores"):
        sensor(source_roots=[ROOT, str(tmp_path)], soft_fail=True).poke({})


def test_what_the_trigger_could_not_look_at_is_raised_as_what_it_was():
    event = {"status": "failed", "error": SourceRefusedError("No.", kept="all", do="ask").to_dict()}

    with pytest.raises(SourceRefusedError, match=r"No\.\nKept: all\nWhat to do: ask"):
        sensor().resume({}, event)


@pytest.mark.parametrize("deferrable", [False, True])
def test_trouble_that_passes_is_tried_again(run_dag, world, deferrable, monkeypatch):
    monkeypatch.setattr("airflow_provider_scope.waiting.FIRST_RETRY_SECONDS", 0.0)
    world.open(faults=[{"kind": "status", "op": "liststatus", "times": 9}])
    world.land(1)

    state, result = waited(run_dag, f"passes_{deferrable}", deferrable=deferrable)

    assert (state, result["count"]) == ("success", 1)


# ---- the end of a wait ------------------------------------------------------------------------------


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(("soft_fail", "expected"), [(False, "failed"), (True, "skipped")])
def test_files_that_do_not_come_in_time_fail_or_skip_the_task(
    run_dag, world, deferrable, soft_fail, expected
):
    world.open()
    world.land(1)

    state, _ = waited(
        run_dag,
        f"timeout_{deferrable}_{soft_fail}",
        deferrable=deferrable,
        min_files=2,
        timeout=0.01,
        soft_fail=soft_fail,
    )

    assert state == expected


def test_never_fail_skips_the_task_whatever_happens(run_dag, world):
    world.open()

    state, _ = waited(run_dag, "never_fail", deferrable=True, never_fail=True, missing_root="fail")

    assert state == "skipped"


def test_a_deferred_task_ends_at_its_execution_timeout_if_that_is_earlier():
    one = sensor(deferrable=True, timeout=600, execution_timeout=timedelta(seconds=5))

    assert one._longest_wait() == 5
    with pytest.raises(AirflowTaskTimeout, match=r"execution_timeout \(5 s\): 0 files"):
        one.resume({}, {"status": "timed out", "text": "0 files"})


def test_the_deadline_counts_from_the_first_look_and_airflow_itself_ends_the_wait_later(monkeypatch):
    stand_in(monkeypatch, adls_gen1, time, time=lambda: 1_000.0)
    one = sensor(deferrable=True, timeout=600, poke_interval=30)
    asked = {}
    monkeypatch.setattr(one, "defer", lambda **given: asked.update(given))

    one._defer(1_000.0 + one._longest_wait())

    assert (asked["trigger"].deadline, asked["trigger"].poll_interval) == (1_600.0, 30)
    assert (asked["method_name"], asked["timeout"]) == ("resume", timedelta(seconds=720))


# ---- which files count ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after",
    [
        "2001-09-09T01:46:41+00:00",
        datetime(2001, 9, 9, 1, 46, 41, tzinfo=UTC),
        "{{ params.after }}",
    ],
)
def test_only_files_modified_after_a_time_count(run_dag, world, after):
    world.open()
    world.land(1, 2)

    _, result = waited(run_dag, "after", modified_after=after, params={"after": "2001-09-09 01:46:41+00:00"})

    assert result["names"] == [f"{ROOT}/f2.ss"]


def test_a_time_that_there_is_not_yet_is_no_limit(run_dag, world):
    world.open()
    world.land(1)

    _, result = waited(run_dag, "no_time", modified_after="{{ prev_end_date_success }}")

    assert result["count"] == 1


@pytest.mark.parametrize("place", ["delta/flights", "delta/flights/_checkpoint"])
def test_only_files_that_the_pipeline_has_not_loaded_count(run_dag, world, first_look, place):
    world.open()
    world.land(1, 2)
    world.run()
    first_look(lambda: world.land(3))

    state, result = waited(
        run_dag, "not_loaded", newer_than_checkpoint=str(world.account / place), deferrable=True
    )

    assert (state, result["names"]) == ("success", [f"{ROOT}/f3.ss"])


@pytest.mark.parametrize("place", ["delta/flights", "delta/flights/_checkpoint"])
def test_files_of_intervals_are_not_told_from_new_ones(world, place):
    world.open()
    world.land(1)
    log = open_log(str(world.table), Checkpoint(), Window(0, 1_000_000_002_000))
    log.put_pipeline(Pipeline(pipeline="p", table=None))
    table = str(world.account / place)

    with pytest.raises(AirflowFailException, match=r"reach to 2001-09-09T01:46:42.*\n.*\n.*modified_after"):
        sensor(newer_than_checkpoint=table).poke({})

    world.land(2)
    found = sensor(newer_than_checkpoint=table, modified_after="2001-09-09T01:46:41.999Z").poke({})
    assert found.xcom_value["names"] == [f"{ROOT}/f2.ss"]


def test_before_the_first_load_every_file_counts(run_dag, world):
    world.open()
    world.land(1)

    _, result = waited(run_dag, "no_log", newer_than_checkpoint=str(world.table))

    assert result["count"] == 1


def test_the_files_of_an_open_batch_count_because_the_load_must_not_be_held_up(run_dag, world):
    world.open(faults=[{"kind": "fail_job", "skip": 1}])
    world.land(1, 2, 3)
    with pytest.raises(Exception, match="batch 1"):
        world.run()

    _, result = waited(run_dag, "open_batch", newer_than_checkpoint=str(world.table))

    assert result["names"] == [f"{ROOT}/f3.ss"]


def test_a_log_that_cannot_be_read_is_not_an_empty_one(world):
    world.open()
    world.land(1)
    world.run()
    (world.table / "_checkpoint/pipeline.json").write_bytes(b"{")

    with pytest.raises(AirflowFailException, match="CheckpointCorruptError"):
        sensor(newer_than_checkpoint=str(world.table)).poke({})


def test_what_dbt_scope_has_loaded_does_not_count(world, tmp_path):
    world.open()
    theirs = DbtScope(LocalStorage(), f"file://{world.table}/_checkpoint")
    old, new = put(tmp_path / "in", "a.ss", 1_000_000_000), put(tmp_path / "in", "b.ss", 1_000_000_000)
    put(tmp_path / "in", "late.ss", 900_000_000)
    theirs.loaded([(str(old), 1_000_000_000_000)])

    found = sensor(source_roots=str(tmp_path / "in"), newer_than_checkpoint=str(world.table)).poke({})

    assert found.xcom_value["names"] == [f"file://{new}"]


def test_a_checkpoint_of_dbt_scope_that_cannot_be_read_is_refused(world):
    world.open()
    world.land(1)
    put(world.table / "_checkpoint", "watermark.json")

    with pytest.raises(AirflowFailException, match=r"CheckpointCorruptError.*watermark\.json"):
        sensor(newer_than_checkpoint=str(world.table)).poke({})


# ---- with others ------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["{}", "file://{}"])
def test_folders_on_a_disk_need_no_connection(run_dag, tmp_path, root):
    put(tmp_path / "in", "a.csv")

    state, result = waited(
        run_dag,
        "on_a_disk",
        source_roots="{{ params.root }}",
        source_patterns=r"\.csv$",
        params={"root": root.format(tmp_path / "in")},
    )

    assert (state, result["names"]) == ("success", [f"file://{tmp_path}/in/a.csv"])


def test_a_sensor_before_a_load_lets_it_load_what_it_found(run_dag, world, first_look):
    world.open()
    world.land(1)
    world.run()
    first_look(lambda: world.land(2))
    with DAG("sensor_and_load", schedule=None) as dag:
        load = DeltaIncrementalIngestOperator(
            task_id="load",
            delta_location=str(world.table),
            source=FileSource(roots=ROOT, columns={"id": "bigint"}),
            sql="SELECT id, source_file_uri FROM @data",
            table=TableSpec(columns={"id": "bigint", "source_file_uri": "string"}),
            engine=ScopeEngine(),
        )
        sensor(newer_than_checkpoint=str(world.table), deferrable=True) >> load

    run = run_dag(dag)

    assert run.state == "success"
    assert world.rows_are_those_of(1, 2)


# ---- arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"source_roots": []}, "source_roots"),
        ({"source_patterns": ["*.ss"]}, "source_patterns='\\*.ss' is not valid: expected a regular"),
        ({"min_files": 0}, "min_files=0"),
        ({"min_bytes": -1}, "min_bytes=-1"),
        ({"stable_for_seconds": "soon"}, "stable_for_seconds='soon'"),
        ({"modified_after": "2026-01-01T00:00:00"}, "modified_after='2026-01-01T00:00:00'"),
        ({"newer_than_checkpoint": ""}, "newer_than_checkpoint=''"),
        ({"missing_root": "ignore"}, "missing_root='ignore'"),
        ({"adls_gen1_conn_id": ""}, "adls_gen1_conn_id=''"),
    ],
)
def test_an_argument_that_is_wrong_fails_when_the_dag_is_parsed(changes, what):
    with pytest.raises(InputError, match=what):
        sensor(**changes)


def test_templates_are_checked_when_the_task_runs(run_dag, world):
    world.open()
    world.land(1)
    numbers = {"min_files": "{{ params.n }}", "stable_for_seconds": "{{ params.n }}"}

    assert waited(run_dag, "templates", params={"n": 1}, **numbers)[0] == "success"
    assert waited(run_dag, "bad_templates", params={"n": "x"}, **numbers)[0] == "failed"


@pytest.mark.parametrize("other", ["abfss://lake@acme.dfs.core.windows.net/in", "adl://other.example/in"])
def test_folders_that_one_client_cannot_list_are_refused(other):
    root = "/data/in" if other.startswith("abfss") else ROOT
    with pytest.raises(AirflowFailException, match="different stores"):
        sensor(source_roots=[root, other]).poke({})
