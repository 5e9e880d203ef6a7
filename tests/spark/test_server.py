"""A Spark that stays on the machine: what it lends, to whom, and what becomes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.engines import server
from airflow_provider_scope.engines.spark import SubmitEngine
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
def home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of the servers of a test, which end with it."""
    tmp_path_factory.getbasetemp()  # below the folder of temporary files, as it was
    folder = Path(tempfile.mkdtemp(prefix="scope-"))  # short: the path of a socket has at most 108 bytes
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is read again
    yield folder / f"airflow-provider-scope-{os.getuid()}"
    for process in servers(folder):
        process.kill()
        process.wait()
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


@pytest.mark.slow
def test_pipelines_share_a_server_at_the_same_time_and_load_their_own_rows(
    home: Path, tmp_path: Path
) -> None:
    """One application runs all batches of a run, those that follow from each other, too."""
    files = a_pipe(tmp_path, "files", sql="SELECT id + 1000 AS id FROM @data")
    feed = a_pipe(tmp_path, "feed", sql="SELECT id FROM @data")
    feed.arguments["source"] = {"table": str(feed.folder / "source"), "max_commits_per_batch": 1}
    land(files, 0, 10)
    insert(feed, 1)
    insert(feed, 2)

    with ThreadPoolExecutor(2) as pool:
        _, report = pool.map(Pipe.run, (files, feed))
        land(files, 20)
        insert(feed, 3)
        list(pool.map(Pipe.run, (files, feed)))

    assert len(servers(home)) == 1
    assert [batch.record.rows for batch in report.batches] == [1, 1]
    assert files.rows() == [(1000,), (1010,), (1020,)]
    assert feed.rows() == [(1,), (2,), (3,)]
    assert [*(feed.table / "_checkpoint" / "plans").iterdir()] == []


def insert(pipe: Pipe, number: int) -> None:
    """Insert a row into the table whose changes a pipeline loads."""
    on = {"delta.enableChangeDataFeed": "true"}
    rows = pa.table({"id": [number]})
    write_deltalake(pipe.arguments["source"]["table"], rows, mode="append", configuration=on)


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


def types(folder: str, engine: str, *words: str) -> None:
    """Type a command where Airflow has the task of a pipeline, and no database, which takes long to make."""
    from airflow.cli.cli_parser import get_parser
    from airflow.sdk import DAG

    from airflow_provider_scope.cli import tasks
    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

    with DAG("dag", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="task",
            delta_location=f"{folder}/target",
            source={"roots": f"{folder}/in", "format": "parquet"},
            engine={"server": engine},
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "find_dag", lambda *_: dag)
        args = get_parser().parse_args(["scope", "spark-server", *words])
        args.func(args)


def typed(pipe: Pipe, *words: str) -> subprocess.Popen[str]:
    """Type a command in a process of its own."""
    script = "import sys; from tests.spark.test_server import types; types(*sys.argv[1:])"
    command = [sys.executable, "-c", script, str(pipe.folder), "auto", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


@pytest.mark.loads
def test_a_server_that_a_user_starts_is_found_listed_and_stopped_once_nobody_uses_it(
    home: Path, tmp_path: Path
) -> None:
    pipe = a_pipe(tmp_path, "p")
    land(pipe, 1)
    process = typed(pipe, "start", "dag", "task")
    assert eventually(lambda: bool(home.exists() and server.servers()), 60)

    pipe.run()

    assert eventually(lambda: [state.runs for state in server.servers()] == [0], 10)
    (state,) = server.servers()
    assert (state.pid, state.task, state.master) == (process.pid, "dag.task", "local[*]")
    assert pipe.rows() == [(1,)]
    again, listed = typed(pipe, "start", "dag", "task"), typed(pipe, "list", "--output", "json")
    assert f"runs already: {state.name}" in again.communicate()[0]
    assert again.returncode == 1
    (row,) = json.loads(listed.communicate()[0])
    assert (row["server"], row["pid"], row["runs"]) == (state.name, str(process.pid), "0")
    client = Client(home / state.name)
    stops = typed(pipe, "stop", state.name)
    assert "waiting for 1 run;" in str(stops.stdout and stops.stdout.readline())
    assert process.poll() is None
    client.close()
    assert stops.communicate()[0] == f"{state.name} has ended\n"
    assert process.wait(10) == 0
    assert not server.servers()


@pytest.mark.parametrize(
    ("words", "error"),
    [(["start", "dag", "task"], "uses no server"), (["stop", "0f"], "No Spark server 0f of this user runs")],
)
def test_a_server_that_nobody_would_find_is_refused(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    with pytest.raises(SystemExit):
        types(str(tmp_path), "never", *words)

    assert error in capsys.readouterr().err
    assert not servers(home)


class Client:
    """What an application says to the server, and is told."""

    def __init__(self, path: Path) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(str(path))
        self.lines = lender._Lines(self.connection)
        self.lines.send({"canary": CANARY})
        assert self.lines.receive()["conf"] == {"canary": CANARY}

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
    home.mkdir(mode=0o700)
    running = lender.Server(spark, home / "s", 600, "dag.task")

    def serve() -> None:
        with running:
            running.serve()

    thread = Thread(target=serve, daemon=True)
    thread.start()
    assert eventually((home / "s").exists)
    yield Lending(home / "s", thread, killed)
    running.idle_seconds = 0
    thread.join(30)


def thread_of(spark: Any) -> tuple[int, Callable[[], None]]:
    """Start a thread in the JVM; return its number, and what ends it."""
    threads = spark._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    before = set(threads.getAllThreadIds())
    timer = spark._jvm.java.util.Timer("of an application")
    names = {number: threads.getThreadInfo(number) for number in {*threads.getAllThreadIds()} - before}
    (number,) = (n for n, info in names.items() if info and info.getThreadName() == "of an application")
    return number, timer.cancel


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


def test_a_server_tells_its_state_which_is_no_use_of_it(
    lending: Lending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lender, "FULL", 0.0)
    client = Client(lending.path)

    (state,) = server.servers()

    assert (state.name, state.pid, state.task, state.runs) == ("s", os.getppid(), "dag.task", 1)
    assert 0 < state.used_mb <= state.max_mb
    client.close()
    lending.thread.join(20)
    assert server.servers() == []


def test_a_server_whose_name_another_one_has_ends_and_leaves_it_there(lending: Lending) -> None:
    (lending.path.parent / "t").touch()

    (lending.path.parent / "t").rename(lending.path)

    lending.thread.join(20)
    assert not lending.thread.is_alive()
    assert lending.path.exists()


@pytest.mark.slow
def test_the_connection_that_an_application_inherits_is_none_of_those_that_a_shell_uses(
    tmp_path: Path,
) -> None:
    script = """
import socket
from pathlib import Path
from airflow_provider_scope.engines import server

with socket.socket(socket.AF_UNIX) as listener:
    listener.bind("s")
    listener.listen()
    print(server._connect(Path("s")).fileno())
"""
    number = subprocess.check_output([sys.executable, "-c", script], cwd=tmp_path, text=True)

    assert int(number.split()[-1]) > 9


def test_the_folder_of_the_servers_may_have_a_longer_name_than_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "-")
    path = tmp_path / ("long" * 30) / "s"
    path.parent.mkdir()

    with lender.Server(SimpleNamespace(_jvm=None), path, 600, "dag.task") as running:  # type: ignore[arg-type]
        connection = server._connect(path)
        assert connection
        with connection:
            running._start(running._listener.accept()[0])
            connection.sendall(b"{}\n")
            welcome = json.loads(connection.makefile().readline())

    assert welcome == {"port": 1, "token": "-", "conf": {}}
    assert server._connect(path) is None


@pytest.mark.parametrize(
    ("name", "value", "is_same"),
    [
        ("LANG", "de_DE.UTF-8", True),
        ("USER", "somebody", True),
        ("PATH", f"{os.environ['PATH']}:/nowhere", True),
        ("AWS_SECRET_ACCESS_KEY", CANARY, False),
        ("SPARK_LOCAL_DIRS", "/elsewhere", False),
        ("YARN_CONF_DIR", "/etc/hadoop", False),
        ("KUBECONFIG", "/etc/kube", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/google.json", False),
        ("TZ", "Asia/Tokyo", False),
        ("spark.hadoop.fs.x.secret", CANARY, False),
        ("spark.airflow_provider_scope.jdbc.password", CANARY, True),
    ],
)
def test_what_spark_is_started_with_decides_which_server_it_is(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, *, is_same: bool
) -> None:
    engine = a_pipe(tmp_path, "p").execution()[0].engine
    assert isinstance(engine, SubmitEngine)

    def server_name() -> str:
        command, _ = engine.server_command()
        return Path(command[-3]).name

    before = server_name()
    if name.startswith("spark."):
        engine.settings = replace(engine.settings, conf={name: value})
    else:
        monkeypatch.setenv(name, value)

    assert (server_name() == before) is is_same


def test_a_folder_that_others_can_open_is_refused(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o755)
    pipe = a_pipe(tmp_path, "p")
    land(pipe, 1)

    with pytest.raises(InputError, match="not this user's alone"):
        pipe.run()
