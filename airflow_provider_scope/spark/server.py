"""A Spark that stays on a machine and lends sessions to applications.

``server.py <socket> <idle seconds> <task>``. An application of ours is always a process of its own. One that
is lent a session is a Python process without a JVM: it works in the server's. Its connection to the socket of
the server is what it lives by: when that ends, by whatever death, the server ends what it left in the JVM.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from airflow_provider_scope.spark.plan import SERVER_CONNECTION
from airflow_provider_scope.spark.session import leave_out_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

_PORT, _TOKEN = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_LOOK_SECONDS = 0.2
_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of Linux: what a process is sent when the one that started it ends."""
END_SECONDS = 30.0
"""How long what an application left in the JVM may take to end; then the server ends itself."""
FULL = 0.6
"""The share of its memory that may be in use while it lends nothing; above it, the server ends itself."""


# ---- the application's side --------------------------------------------------------------------------


@contextmanager
def opened() -> Iterator[SparkSession]:
    """Open the session of this application: a session of a server that was handed on, or one of its own."""
    if SERVER_CONNECTION not in os.environ:
        spark = SparkSession.builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
        return
    with socket.socket(fileno=int(os.environ[SERVER_CONNECTION])) as connection:
        yield _borrowed(_Lines(connection))


def _borrowed(server: _Lines) -> SparkSession:
    welcome = server.receive()
    os.environ |= {_PORT: str(welcome["port"]), _TOKEN: welcome["token"]}
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    settings = SparkConf(_jconf=context.getConf())
    # The first session that Python knows becomes the JVM's default: that stays the server's own.
    servers = SparkSession(SparkContext(conf=settings, gateway=gateway, jsc=context), _default(gateway.jvm))
    spark = servers.newSession()
    activate(spark)
    thread = gateway.jvm.java.lang.Thread.currentThread().getId()
    server.send({"tag": spark._jsparkSession.sessionJobTag(), "thread": thread})
    for name, value in welcome["conf"].items():
        spark.conf.set(name, value)
    return spark


def activate(spark: SparkSession) -> None:
    """Make a session that of this thread: in a server's JVM the default is another one.

    Its jobs get their share of Spark's tasks, and do not wait for the end of those of other applications.
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    _sessions(jvm).setActiveSession(session)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", session.sessionJobTag())


def _sessions(jvm: Any) -> Any:
    return jvm.org.apache.spark.sql.classic.SparkSession


def _default(jvm: Any) -> Any:
    return _sessions(jvm).getDefaultSession().get()


class _Lines:
    """JSON values over a connection, a line each."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("r", encoding="utf-8")

    def send(self, value: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(value).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for a value.

        :raises ConnectionError: The other side has ended.
        """
        line = self._file.readline()
        if not line.endswith("\n"):
            msg = "the Spark server has ended"
            raise ConnectionError(msg)
        value: dict[str, Any] = json.loads(line)
        return value


# ---- the server's side -------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Lend sessions until nobody has asked for one for a while, or it is stopped."""
    path, idle_seconds, task = arguments
    # What it lends is in the JVM that started it: without that, nobody may find it any more.
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    leave_out_numpy()
    spark = SparkSession.builder.getOrCreate()
    with Server(spark, Path(path), float(idle_seconds), task) as server:
        server.serve()
    spark.stop()
    return 0


class Server:
    """Lends sessions of one Spark.

    :param path: The socket; whoever may connect to it may use the JVM. Who takes its name away stops it.
    :param idle_seconds: How long it waits for an application; then it ends.
    :param task: What it was started for.
    """

    def __init__(self, spark: SparkSession, path: Path, idle_seconds: float, task: str) -> None:
        self.spark = spark
        self.path = path
        self.idle_seconds = idle_seconds
        self.task = task
        self._jvm: Any = spark._jvm
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._inode = 0
        self._applications: set[threading.Thread] = set()
        self._was_used = False
        self._is_hung = False

    def __enter__(self) -> Self:
        mask, new = os.umask(0o077), self.path.with_suffix(f".{os.getpid()}")
        new.unlink(missing_ok=True)
        folder = os.open(new.parent, os.O_PATH)
        try:
            self._listener.bind(f"/proc/self/fd/{folder}/{new.name}")  # a path has at most 108 bytes
        finally:
            os.close(folder)
            os.umask(mask)
        self._inode = new.lstat().st_ino
        self._listener.listen()
        self._listener.settimeout(_LOOK_SECONDS)
        new.rename(self.path)  # in place of one that was killed
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_name():
            self.path.unlink(missing_ok=True)  # whoever connected until now is served, nobody else
        self._listener.settimeout(0)
        with suppress(BlockingIOError):
            while True:
                self._start(self._listener.accept()[0])
        self._listener.close()
        for thread in self._applications:
            while thread.is_alive() and not self._is_hung:
                thread.join(_LOOK_SECONDS)
        if self._is_hung:
            os.kill(os.getppid(), signal.SIGKILL)  # the JVM: what does not end there may still write

    def serve(self) -> None:
        """Lend sessions until it is idle, or is stopped, or its memory is full."""
        parent, idle_since = os.getppid(), time.monotonic()
        while os.getppid() == parent and self._has_name() and not self._is_hung:
            with suppress(TimeoutError):
                self._start(self._listener.accept()[0])
            self._applications = {thread for thread in self._applications if thread.is_alive()}
            if self._applications:
                continue
            if self._was_used:
                if self._is_full():
                    return
                self._was_used, idle_since = False, time.monotonic()
            if time.monotonic() - idle_since >= self.idle_seconds:
                return

    def _has_name(self) -> bool:
        try:
            return self.path.lstat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _start(self, connection: socket.socket) -> None:
        connection.setblocking(True)  # noqa: FBT003 - Python's
        thread = threading.Thread(target=self._lend, args=[connection], daemon=True)
        self._applications.add(thread)
        thread.start()

    def _lend(self, connection: socket.socket) -> None:
        """Serve one application until its process ends, and then end what it leaves."""
        application, in_jvm = _Lines(connection), {}
        try:
            with connection, suppress(OSError):
                if not _is_own(connection):
                    return
                conf = application.receive()
                if "question" in conf:
                    application.send(self._state())
                    return
                self._was_used = True
                application.send({"port": int(os.environ[_PORT]), "token": os.environ[_TOKEN], "conf": conf})
                in_jvm = application.receive()
                application.receive()  # nothing comes but the end
        finally:
            self._is_hung |= bool(in_jvm) and not self._has_ended(**in_jvm)

    def _has_ended(self, tag: str, thread: int) -> bool:
        """End the jobs of an application, until its thread in the JVM has ended."""
        threads = self._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        deadline = time.monotonic() + END_SECONDS
        while threads.getThreadInfo(thread) is not None:
            if time.monotonic() > deadline:
                return False
            self.spark.sparkContext.cancelJobsWithTag(tag)
            time.sleep(_LOOK_SECONDS)
        return True

    def _state(self) -> dict[str, Any]:
        """Return what ``engines.server.ServerState`` has."""
        used, most = self._memory()
        return {
            "pid": os.getppid(),
            "task": self.task,
            "master": self.spark.sparkContext.master,
            "started_ms": self.spark.sparkContext.startTime,
            "runs": sum(thread.is_alive() for thread in self._applications) - 1,  # the asking one is none
            "used_mb": used >> 20,
            "max_mb": most >> 20,
        }

    def _is_full(self) -> bool:
        self._jvm.java.lang.System.gc()
        used, most = self._memory()
        return used > FULL * most

    def _memory(self) -> tuple[int, int]:
        """Return how many bytes of Java's memory are in use, and how many may be."""
        runtime = self._jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory()), int(runtime.maxMemory())


def _is_own(connection: socket.socket) -> bool:
    """Return whether the other side is a process of this user: the socket's folder may have been opened."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
