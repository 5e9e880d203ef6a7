"""A Spark that stays on the machine: what it lends, to whom, and what becomes of it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_scope.engines import server
from airflow_provider_scope.exceptions import InputError, SparkJobFailedError
from airflow_provider_scope.spark import server as lender
from tests.support.processes import eventually
from tests.support.stand_in import stand_in
from tests.support.warm import Pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.spark

HANGS = (
    "SELECT d.* FROM @data d WHERE (SELECT count(*) FROM range(0, 10000000000000, 1, 1) WHERE id % 7 = 3) > 0"
)
CANARY = "canary-7f3a"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of the servers of a test, which end with it."""
    folder = Path(tempfile.mkdtemp(prefix="scope-"))  # short: the path of a socket has at most 108 bytes
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder / f"airflow-provider-scope-{os.getuid()}"
    for process in servers(folder):
        process.kill()
    shutil.rmtree(folder)


def servers(home: Path) -> list[psutil.Process]:
    """Return the processes of Java of all servers."""
    processes = psutil.process_iter(["name", "cmdline"])
    java = [process for process in processes if process.info["name"] == "java"]
    return [process for process in java if str(home) in " ".join(process.info["cmdline"] or ())]


def a_pipe(folder: Path, name: str, **arguments: Any) -> Pipe:
    place = folder / name
    place.mkdir()
    source = {"roots": str(place / "in"), "format": "parquet"}
    return Pipe(place, {"source": source, "engine": {"server": "auto"}, **arguments})


def land(pipe: Pipe, *ids: int) -> None:
    folder = pipe.folder / "in"
    folder.mkdir(exist_ok=True)
    path = folder / f"{ids[0]}.parquet"
    pq.write_table(pa.table({"id": ids}), path)
    os.utime(path, (time.time() - 3600,) * 2)


def test_pipelines_share_a_server_at_the_same_time_and_load_their_own_rows(
    home: Path, tmp_path: Path
) -> None:
    selects = [f"SELECT id + {number}000 AS id FROM @data" for number in range(2)]
    pipes = [a_pipe(tmp_path, f"p{number}", sql=select) for number, select in enumerate(selects)]
    for number, pipe in enumerate(pipes):
        land(pipe, number, number + 10)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Pipe.run, pipes))
        for number, pipe in enumerate(pipes):
            land(pipe, number + 20)
        list(pool.map(Pipe.run, pipes))

    assert len(servers(home)) == 1
    for number, pipe in enumerate(pipes):
        assert pipe.rows() == [(number * 1001 + more,) for more in (0, 10, 20)]


@pytest.mark.loads
def test_an_application_that_is_killed_ends_alone_and_its_table_is_free(home: Path, tmp_path: Path) -> None:
    pipe, other = a_pipe(tmp_path, "hangs", sql=HANGS), a_pipe(tmp_path, "other")
    land(pipe, 1)
    land(other, 2)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(pipe.run)
        assert eventually(lambda: bool(applications(pipe)), 120)
        other.run()
        (java,) = servers(home)
        time.sleep(3)
        for process in applications(pipe):
            process.send_signal(signal.SIGKILL)
        with pytest.raises(SparkJobFailedError, match="killed from outside"):
            run.result()

    pipe.run(sql="SELECT * FROM @data")

    assert [process.pid for process in servers(home)] == [java.pid]
    assert (pipe.rows(), other.rows()) == ([(1,)], [(2,)])


def applications(pipe: Pipe) -> list[psutil.Process]:
    """Return the applications that run a plan of a pipeline."""
    of = [p for p in psutil.process_iter(["name", "cmdline"]) if "python" in p.info["name"]]
    return [p for p in of if f"{pipe.table}/_checkpoint/plans" in " ".join(p.info["cmdline"] or ())]


@pytest.mark.loads
def test_other_settings_are_another_server_and_secrets_are_seen_nowhere(home: Path, tmp_path: Path) -> None:
    pipe = a_pipe(tmp_path, "p")
    land(pipe, 1)
    pipe.run()
    land(pipe, 2)

    pipe.run(engine={"server": "auto", "conf": {"spark.hadoop.fs.x.secret": CANARY}})

    assert len(servers(home)) == 2
    assert pipe.rows() == [(1,), (2,)]
    assert not any(CANARY in " ".join(p.cmdline()) for p in servers(home))
    assert not any(CANARY.encode() in path.read_bytes() for path in home.iterdir() if path.is_file())


@pytest.mark.loads
def test_a_server_ends_when_nobody_has_asked_for_a_while_and_another_one_takes_its_place(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 1)
    pipe = a_pipe(tmp_path, "p")
    land(pipe, 1)
    pipe.run()
    assert eventually(lambda: not servers(home))
    land(pipe, 2)

    pipe.run()

    assert pipe.rows() == [(1,), (2,)]


@pytest.mark.loads
def test_a_server_that_was_killed_is_started_again(home: Path, tmp_path: Path) -> None:
    pipe = a_pipe(tmp_path, "p")
    land(pipe, 1)
    pipe.run()
    (java,) = servers(home)
    processes = psutil.process_iter(["ppid", "cmdline"])
    (lends,) = (p for p in processes if p.info["ppid"] == java.pid and "server.py" in str(p.info["cmdline"]))
    java.kill()
    java.wait()
    land(pipe, 2)

    pipe.run()

    assert not lends.is_running()

    assert pipe.rows() == [(1,), (2,)]


def test_a_server_that_does_not_start_says_why(home: Path, tmp_path: Path) -> None:
    pipe = a_pipe(tmp_path, "p", engine={"server": "auto", "conf": {"spark.driver.memory": "1k"}})
    land(pipe, 1)

    with pytest.raises(InputError, match="Spark does not start"):
        pipe.run()

    assert not servers(home)


class Client:
    """What an application says to the server, and is told."""

    def __init__(self, path: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(str(path))
        self.lines = lender._Lines(self.connection)
        assert self.lines.ask({"canary": CANARY})["conf"] == {"canary": CANARY}

    def locks(self, file: Path | None) -> bool:
        return bool(self.lines.ask({"lock": file and str(file)})["locked"])

    def close(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)


@dataclass
class Lending:
    """A server that lends sessions of the tests' Spark."""

    path: Path
    thread: Thread
    killed: list[int]
    """The processes that it ended: here these are not those of Java."""


@pytest.fixture
def lending(spark: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lending]:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "-")
    killed: list[int] = []
    stand_in(monkeypatch, lender, os, kill=lambda pid, _: killed.append(pid))
    home.mkdir()
    running = lender.Server(spark, home / "s", 600)

    def serve() -> None:
        with running:
            running.serve()

    thread = Thread(target=serve, daemon=True)
    thread.start()
    assert eventually((home / "s").exists)
    yield Lending(home / "s", thread, killed)
    running.idle_seconds = 0
    thread.join()


def thread_of(spark: Any) -> tuple[int, Callable[[], None]]:
    """Start a thread in the JVM; return its number, and what ends it."""
    threads = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    before = set(threads.getAllThreadIds())
    timer = spark._jvm.java.util.Timer("of an application")
    names = {number: threads.getThreadInfo(number) for number in {*threads.getAllThreadIds()} - before}
    (number,) = (n for n, info in names.items() if info and info.getThreadName() == "of an application")
    return number, timer.cancel


def test_a_lock_outlives_its_application_until_what_that_does_in_java_has_ended(
    spark: Any, lending: Lending, tmp_path: Path
) -> None:
    number, end = thread_of(spark)
    one, other = Client(lending.path), Client(lending.path)
    one.lines.send({"tag": "one", "thread": number})
    other.lines.send({"tag": "other", "thread": 1 << 40})
    assert one.locks(tmp_path / "lock")
    assert not other.locks(tmp_path / "lock")

    one.close()

    assert not eventually(lambda: other.locks(tmp_path / "lock"), 2)
    end()
    assert eventually(lambda: other.locks(tmp_path / "lock"), 10)
    assert not other.locks(None)


def test_a_server_in_which_something_does_not_end_lends_nothing_any_more(
    spark: Any, lending: Lending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lender, "END_SECONDS", 0.5)
    number, end = thread_of(spark)
    client = Client(lending.path)
    client.lines.send({"tag": "one", "thread": number})

    client.close()

    lending.thread.join(20)
    end()
    assert not lending.thread.is_alive()
    assert lending.killed == [os.getppid()]


def test_a_server_whose_memory_is_full_ends_when_nobody_uses_it(
    lending: Lending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lender, "FULL", 0.0)
    one, other = Client(lending.path), Client(lending.path)
    one.close()
    lending.thread.join(1)
    assert lending.thread.is_alive()

    other.close()

    lending.thread.join(20)
    assert not lending.thread.is_alive()


def test_a_folder_that_others_can_open_is_refused(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o755)
    pipe = a_pipe(tmp_path, "p")
    land(pipe, 1)

    with pytest.raises(InputError, match="not this user's alone"):
        pipe.run()
