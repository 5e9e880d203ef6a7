"""One application runs all batches of a run, those that follow from each other, too; on a cluster as well."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.engines.spark import ApplicationEvents
from airflow_provider_scope.exceptions import (
    JobRunningError,
    ScopeJobFailedError,
    SparkJobFailedError,
    StorageError,
)
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.plan import EVENT
from airflow_provider_scope.stores.protocol import Store
from tests.crash import cluster_world
from tests.crash.cluster_world import ClusterInTurnWorld, ClusterWorld
from tests.crash.world import DeltaWorld
from tests.support.fake_submit import Fake, fake
from tests.support.faulty_storage import DiedError, Gate, after, before, die, open_gate
from tests.support.numbers import row_of
from tests.support.values import a_file, an_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport

__all__ = ["fake"]

PYTHON = sys.executable
PROGRAM = f"""\
import json, pathlib, sys, time

def tell(**event):
    print({EVENT!r} + json.dumps(event), flush=True)

place = pathlib.Path(sys.argv[1]).parents[1] / "asked"
first, *more = sys.argv[sys.argv.index("main.py") + 1 :]
number = 0
while True:
    path = pathlib.Path(first.removeprefix("file://") + (f".{{number}}" if number else ""))
    while not path.exists():
        time.sleep(0.01)
    batches = json.loads(path.read_text())["batches"]
    with place.open("a") as file:
        file.write(f"{{batches}}\\n")
    if batches == [FAILS_AT]:
        error = {{"type": "SparkJobFailedError", "what": "no", "kept": "", "do": ""}}
        tell(event="failed", error=error)
        sys.exit(1)
    for seq in batches:
        tell(event="batch", seq=seq, what="rows", version=seq, seconds=0.1)
    if not batches or not more:
        break
    number += 1
    tell(event="waiting")
print("the end")
"""


class Application:
    """An application that does as ours, without Spark."""

    def __init__(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = fake
        monkeypatch.setattr("airflow_provider_scope.engines.application.SCRIPT", "main.py")
        self.program()

    def program(self, fails_at: int = -1) -> None:
        text = PROGRAM.replace("FAILS_AT", str(fails_at))
        (self.fake.folder / "program.py").write_text(text)
        script = f"{self.fake.folder}/bin/spark-submit"
        self.fake.program(
            "spark-submit", f'exec {PYTHON} -c "$(cat {self.fake.folder}/program.py)" "{script}" "$@"'
        )

    def run(self, more: Callable[[], list[OffsetEntry]] | None = None) -> None:
        self.fake.runner().run(self.fake.work(), [batch(0)], more)

    @property
    def asked(self) -> list[Any]:
        return [json.loads(line) for line in (self.fake.folder / "asked").read_text().splitlines()]

    @property
    def plans_left(self) -> list[str]:
        return sorted(one.name for one in (self.fake.folder / "checkpoint" / "plans").iterdir())


@pytest.fixture
def application(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Application:
    return Application(fake, monkeypatch)


def batch(seq: int) -> OffsetEntry:
    return an_entry(seq, a_file(f"{seq}.parquet"))


def test_an_application_takes_what_follows_until_nothing_does(application: Application) -> None:
    coming = iter([[batch(1)], [batch(2), batch(3)], []])

    application.run(lambda: next(coming))

    assert application.asked == [[0], [1], [2, 3], []]
    assert application.plans_left == []
    assert "the end" in application.fake.log_file.read_text()


def test_an_application_without_what_follows_waits_for_nothing(application: Application) -> None:
    application.run()

    assert application.asked == [[0]]
    assert application.plans_left == []


def test_what_goes_wrong_here_meanwhile_ends_the_application_and_is_raised(application: Application) -> None:
    def more() -> list[OffsetEntry]:
        raise StorageError("The log could not be read.", kept="all", do="look")

    with pytest.raises(StorageError, match="could not be read"):
        application.run(more)

    assert application.asked == [[0], []]
    assert "the end" in application.fake.log_file.read_text()
    assert application.plans_left == []


def test_a_batch_that_follows_and_fails_is_the_error(application: Application) -> None:
    application.program(fails_at=1)

    with pytest.raises(SparkJobFailedError, match=r"^no"):
        application.run(lambda: [batch(1)])

    assert application.asked == [[0], [1]]


def test_an_application_that_ends_before_it_takes_what_follows_has_failed(application: Application) -> None:
    def more() -> list[OffsetEntry]:
        application.fake.program("spark-submit", "exit 0")
        hook = runner._hook
        assert hook is not None
        hook._submit_sp.kill()
        return [batch(1)]

    runner = application.fake.runner()
    with pytest.raises(SparkJobFailedError):
        runner.run(application.fake.work(), [batch(0)], more)

    assert application.plans_left == []


def test_an_application_waits_for_its_next_plan_for_some_time(tmp_path: Path) -> None:
    path = plans.path(f"file://{tmp_path}/plan", 3)

    assert app._awaited(None, path, 0.1) is None  # type: ignore[arg-type] # a disk needs no session

    assert path.endswith("/plan.3")


def test_what_is_told_of_each_batch_is_a_warning_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[str] = []
    events = ApplicationEvents(reported.append)
    for seq, message in ((0, "late rows"), (1, "late rows"), (1, "no index"), (1, "no index")):
        events.take({"event": "notice", "seq": seq, "message": message})
        events.take({"event": "columns", "seq": seq, "message": message})

    assert [record.getMessage() for record in caplog.records] == ["batch 0: late rows", "batch 1: no index"]
    assert reported == ["batch 0: late rows", "batch 1: late rows", "batch 1: no index"]


# ---- on a cluster, whoever answers it, and when ------------------------------------------------------


BATCHES = 4


class Cluster(ClusterInTurnWorld):
    """A source of four batches, and what is on the cluster."""

    first_dies = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for number in range(2 * BATCHES):
            self.drop(f"{number}", at=100 - number)

    @property
    def applications(self) -> dict[str, str]:
        """The results of the applications by their names, without the pipeline; empty while one runs."""
        return {
            "-".join(path.name.split("-")[-2:]): json.loads(path.read_text())["result"]
            for path in sorted((self.folder / "manager").iterdir())
        }

    def end_all(self, result: str) -> None:
        """Let all that run end as the manager says."""
        for path in (self.folder / "manager").iterdir():
            state = json.loads(path.read_text())
            path.write_text(json.dumps({**state, "result": state["result"] or result}))

    def plans(self) -> list[str]:
        folder = self.folder / "table" / "_checkpoint" / "plans"
        names = (path.name.split("-")[-1] for path in folder.iterdir())
        return sorted(name for name in names if not name.endswith(".events"))

    def task(self, gate: Gate = open_gate, *, resumed: bool = False, **of_wait: Any) -> RunReport:
        """Run one try of a task."""
        engine = self.engine(gate)
        engine.resumed = resumed
        engine.wait = replace(engine.wait, **of_wait)
        return DeltaWorld.run(self, gate, engine=engine)

    def events(self, number: str) -> bytes:
        """Return what is told of a plan, so far."""
        folder = self.folder / "table" / "_checkpoint" / "plans"
        return b"".join(path.read_bytes() for path in folder.glob(f"*-{number}.events"))

    def work_until_it_waits(self, number: str) -> None:
        manager = self.engine(open_gate).manager
        while not plans.waits(self.events(number)):
            assert "" in self.applications.values()
            manager.get_jobs([path.name for path in (self.folder / "manager").iterdir()])

    def check(self) -> None:
        """Check that each number is loaded once, and that the log says so."""
        assert self.rows() == Counter(row_of(number) for number in range(2 * BATCHES))
        assert not self.log().open_entries()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def kill(cluster: Cluster, gate: Gate) -> None:
    with pytest.raises(DiedError):
        cluster.run(gate)


def put(name: str, do: Callable[[], object], when: Any = before) -> Gate:
    """Do something before a plan is put: its name without the pipeline."""

    def gate(call: Any, effect: Callable[[], Any], torn: Any = None) -> Any:
        verb, _, path = call.name.partition(" ")
        renamed = "the plan" if (verb, path.split("-")[-1]) == ("put", name) else call.name
        return inner(replace(call, name=renamed), effect, torn)

    inner = when("the plan", do)
    return gate


def test_one_application_runs_them_all_and_leaves_nothing_but_its_name_and_its_end(cluster: Cluster) -> None:
    report = cluster.run()

    assert [batch.record.seq for batch in report.batches] == [0, 1, 2, 3]
    assert list(cluster.applications) == ["0-0"]
    assert cluster.plans() == ["0", "0.3", "0.4"]
    cluster.check()


@pytest.mark.parametrize("keeps_secrets", [True, False])
def test_what_a_connection_says_is_submitted_only_where_nobody_else_sees_it(
    cluster: Cluster, *, keeps_secrets: bool
) -> None:
    engine, submitted = cluster.engine(open_gate), []
    secret = {"spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "canary"}
    engine.stores = {"abfss://c@a.dfs.core.windows.net/in": Store(storage=cluster.storage, spark_conf=secret)}
    engine.manager.keeps_secrets, engine.manager.submit = keeps_secrets, submitted.append
    with pytest.raises(SparkJobFailedError):  # nobody runs it
        DeltaWorld.run(cluster, engine=engine)

    (application,) = submitted
    assert (secret.items() <= application.conf.items()) is keeps_secrets
    assert keeps_secrets or "spark.redaction.regex" in application.conf


@pytest.mark.parametrize("when", [before, after])
@pytest.mark.parametrize("number", ["0.1", "0.4"])
def test_a_worker_that_dies_around_the_next_plan_is_followed_by_one_that_goes_on(
    cluster: Cluster, number: str, when: Any
) -> None:
    kill(cluster, put(number, die, when))

    cluster.run()

    assert list(cluster.applications) == ["0-0"]
    cluster.check()


@pytest.mark.parametrize("number", ["0.1", "0.4"])
def test_an_application_that_ends_while_nobody_answers_is_followed_by_another_one(
    cluster: Cluster, number: str
) -> None:
    kill(cluster, put(number, die))
    cluster.end_all("Succeeded")

    cluster.run()

    assert len(cluster.applications) == (1 if number == "0.4" else 2)
    cluster.check()


@pytest.mark.parametrize("result", ["Succeeded", "Failed"])
def test_an_answer_that_comes_too_late_is_an_application_of_its_own(cluster: Cluster, result: str) -> None:
    report = cluster.run(put("0.2", lambda: cluster.end_all(result)))

    assert [batch.record.seq for batch in report.batches] == [0, 1, 2, 3]
    assert list(cluster.applications) == ["0-0", "2-0"]
    assert cluster.plans() == ["0", "0.1", "0.2"], "those of the first one are forgotten"
    cluster.check()


def test_an_application_that_waits_for_no_moment_makes_one_for_each_batch(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_world, "WAITS_LOOKS", 0)

    cluster.run()

    assert [*cluster.applications] == ["0-0", "1-0", "2-0", "3-0"]
    cluster.check()


def test_an_application_that_somebody_ends_while_it_waits_is_not_replaced(cluster: Cluster) -> None:
    with pytest.raises(SparkJobFailedError, match="was cancelled"):
        cluster.task(put("0.1", lambda: cluster.end_all("Cancelled")))

    assert list(cluster.applications) == ["0-0"]
    cluster.run()
    cluster.check()


def test_another_run_that_answers_first_is_as_good(cluster: Cluster) -> None:
    cluster.run(put("0.1", cluster.run))

    assert len(cluster.applications) <= 2
    cluster.check()


def test_a_batch_that_is_closed_ends_the_application_that_waits(cluster: Cluster) -> None:
    kill(cluster, put("0.1", die))

    cluster.abandon(1)
    cluster.end_all("Succeeded")
    cluster.run()

    assert cluster.log().commit(1).abandoned


def test_a_task_that_defers_goes_on_with_the_same_application_until_there_is_nothing(
    cluster: Cluster,
) -> None:
    deferred: list[str] = []
    report = None
    while report is None:
        try:
            report = cluster.task(resumed=bool(deferred), inline_wait_seconds=0.0)
        except JobRunningError as err:
            deferred.append(str(err.events).split("-")[-1].removesuffix(".events"))
            cluster.work_until_it_waits(deferred[-1])

    assert deferred == ["0", "0.1", "0.2", "0.3"]
    assert list(cluster.applications) == ["0-0"]
    assert "0.4" in cluster.plans(), "it is told that nothing follows"
    cluster.check()


def test_a_task_over_its_time_gives_no_further_plan_and_ends_the_application(cluster: Cluster) -> None:
    seconds = [0.0]

    def clock() -> float:
        if plans.waits(cluster.events("0.1")):
            seconds[0] = 100.0
        return seconds[0]

    with pytest.raises(ScopeJobFailedError, match="execution_timeout has run out"):
        cluster.task(clock=clock, deadline=50.0)

    assert cluster.applications == {"0-0": "Cancelled"}
    assert "0.2" not in cluster.plans()
    cluster.run()
    cluster.check()


def test_how_an_application_over_its_time_was_torn_down_is_not_why_it_failed(tmp_path: Path) -> None:
    world = ClusterWorld(tmp_path)
    for number in range(BATCHES):
        world.drop(f"{number}", at=100 - number)
    engine = world.engine(open_gate)
    submitted = tmp_path / "manager"
    engine.wait = replace(engine.wait, deadline=50.0, clock=lambda: 100.0 if submitted.exists() else 0.0)

    with pytest.raises(SparkJobFailedError, match="execution_timeout has run out; the application"):
        DeltaWorld.run(world, open_gate, engine=engine)

    world.run()
    assert list(world.rows().values()) == [1] * 2 * BATCHES
