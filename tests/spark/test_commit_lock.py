"""Two applications commit to one table on a local disk, and one of them is frozen in the midst of it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from threading import Thread
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.engines import application
from airflow_provider_scope.spark import commit
from tests.support.meanwhile import meanwhile
from tests.support.processes import PROJECT
from tests.support.stand_in import stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.spark

TRIES = 20
"""Commits of the first one until it is frozen where it should be: for a millisecond or two it is there."""
BLOCKED_SECONDS = 5


class Application:
    """A process with a JVM of its own that commits a row whenever it is told to."""

    def __init__(self, table: Path, value: int, *, locks: bool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.test_commit_lock", str(table), str(value), str(int(locks))],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.wait()

    def begin(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("commit\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        assert self.process.stdout
        line = self.process.stdout.readline()
        while line != "ready\n":
            assert line, "it died"
            line = self.process.stdout.readline()

    def jvm(self) -> psutil.Process:
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(child for child in children if child.name() == "java")

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


class Here:
    """This process, which commits a row by the JVM of all tests."""

    def __init__(self, spark: Any, table: Path, value: int) -> None:
        self.log, self.row = commit.DeltaLog(spark, f"file://{table}"), a_row(spark, value)
        commit.DeltaLog(spark, f"file://{table}-warm-{value}").save(self.row.write.format("delta"))

    def begin(self) -> None:
        self.thread = Thread(target=self.log.save, args=[self.row.write.format("delta").mode("append")])
        self.thread.start()

    def wait(self) -> None:
        self.thread.join()


def a_row(spark: Any, value: object) -> Any:
    return spark.sql(f"SELECT CAST({value} AS bigint) AS a FROM range(1)")


def main(table: str, value: str, locks: str) -> None:
    """Commit a row for each line of standard input."""
    from pyspark.sql import SparkSession

    if locks == "0":
        commit.one_commit_at_a_time = lambda *_: nullcontext()  # type: ignore[assignment] # what it was before
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars.packages", application.delta_package())
    builder = builder.config("spark.jars.excludes", ",".join(application.EXCLUDED_PACKAGES))
    for key, setting in {**application.REQUIRED_CONF, **application.LOCAL_CONF}.items():
        builder = builder.config(key, setting)
    spark = builder.getOrCreate()
    log = commit.DeltaLog(spark, f"file://{table}")
    row = a_row(spark, value)
    commit.DeltaLog(spark, f"file://{table}-warm-{value}").save(row.write.format("delta"))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        log.save(row.write.format("delta").mode("append"))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
    spark.stop()


@pytest.fixture(params=[True, False], ids=["with the lock", "without it"])
def locks(request: Any) -> bool:
    return bool(request.param)


@pytest.fixture
def two(
    spark: Any, tmp_path: Path, locks: bool, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Application, Here]]:
    write_deltalake(str(tmp_path / "table"), pa.table({"a": pa.array([0], pa.int64())}))
    if not locks:
        monkeypatch.setattr(commit, "one_commit_at_a_time", lambda *_: nullcontext())
    application = Application(tmp_path / "table", 1, locks=locks)
    yield application, Here(spark, tmp_path / "table", 2)
    application.end()


def freeze_in_a_commit(one: Application, log: Path) -> int:
    """Let one commit until it is frozen with its file written, and not yet renamed; give the version."""
    jvm = one.jvm()
    for _ in range(TRIES):
        version = max(int(path.stem) for path in log.glob("*.json")) + 1
        final = log / f"{version:020}.json"
        one.begin()
        while not final.exists():
            if any(name.startswith(f".{version:020}.json.") for name in os.listdir(log)):  # noqa: PTH208 - in a hurry
                jvm.suspend()
                break
        time.sleep(0.2)
        if not final.exists() and jvm.status() == psutil.STATUS_STOPPED:
            return version
        jvm.resume()
        one.wait()
    return pytest.fail("it could not be frozen there")


@pytest.mark.loads
def test_nobody_commits_while_another_one_is_in_the_midst_of_it(
    two: tuple[Application, Here],
    tmp_path: Path,
    locks: bool,
) -> None:
    one, other = two
    table = tmp_path / "table"
    version = freeze_in_a_commit(one, table / "_delta_log")

    other.begin()
    deadline = time.monotonic() + BLOCKED_SECONDS
    while time.monotonic() < deadline and DeltaTable(str(table)).version() < version:
        time.sleep(0.1)
    before = DeltaTable(str(table)).version()
    os.kill(one.jvm().pid, signal.SIGCONT)
    one.wait()
    other.wait()

    assert before == (version - 1 if locks else version)
    assert DeltaTable(str(table)).version() == version + 1
    assert DeltaTable(str(table)).to_pyarrow_table()["a"].to_pylist().count(2) == 1


def test_a_commit_waits_for_another_process_and_lets_none_in_until_it_is_done(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process is this one: Java holds the lock."""
    table = tmp_path / "table"
    write_deltalake(str(table), pa.table({"a": pa.array([0], pa.int64())}))
    versions, refusals = [], []
    with (table / commit._LOCK).open("w") as file:

        def lets_in(_: float) -> None:
            versions.append(DeltaTable(str(table)).version())
            fcntl.lockf(file, fcntl.LOCK_UN)

        def tries() -> None:
            with pytest.raises(BlockingIOError) as refused:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            refusals.append(refused.value)

        stand_in(monkeypatch, commit, time, sleep=lets_in)
        spark.udf.register("meanwhile", meanwhile(tries), "bigint")
        row = a_row(spark, "meanwhile(id)").write
        fcntl.lockf(file, fcntl.LOCK_EX)
        commit.DeltaLog(spark, f"file://{table}").save(row.format("delta").mode("append"))

        assert versions == [0]
        assert refusals
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert DeltaTable(str(table)).version() == 1


def test_whoever_gives_up_waiting_leaves_the_lock_to_another_thread(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"file://{tmp_path}"

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    stand_in(monkeypatch, commit, time, sleep=interrupted)
    with (tmp_path / commit._LOCK).open("w") as file:  # as another process has it
        with commit.one_commit_at_a_time(spark, table):
            with pytest.raises(KeyboardInterrupt), commit.one_commit_at_a_time(spark, table):
                pass
            with pytest.raises(BlockingIOError):
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


if __name__ == "__main__":
    main(*sys.argv[1:])
