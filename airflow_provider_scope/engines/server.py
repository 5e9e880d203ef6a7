"""A Spark that stays on this machine: a run uses the one with its settings, or starts it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import math
import os
import secrets
import select
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.engines import application
from airflow_provider_scope.engines.application import KEPT
from airflow_provider_scope.engines.submit import SubmitHook, defaults_file, properties
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.cursor.databases import CONF
from airflow_provider_scope.spark.plan import SERVER_CONNECTION
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

IDLE_SECONDS = 600.0
"""How long a server that a task started waits for the next application; then it ends."""
_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 10.0
_FIRST_NUMBER = 10
"""Of the file descriptors that an application inherits: the shell between uses smaller ones."""
_VARIABLES = (
    *("AWS_", "AZURE_", "GOOGLE_", "HADOOP_", "HOME", "JAVA_", "JDK_", "KRB5", "KUBE", "LC_ALL"),
    *("LD_LIBRARY_PATH", "PYSPARK_", "PYTHONPATH", "SPARK_", "TMPDIR", "TZ", "YARN_"),
)
"""How the names of the variables begin that a server gets. The name of its socket depends on them, and on
the programs that it runs from PATH."""


class ServedHook(SubmitHook):
    """Runs an application in a session of a Spark that stays on this machine.

    A server has the versions and settings that it was started with; a run with other ones uses another
    server. Settings of a database belong to the session alone.

    :param conf: As ``SubmitHook`` takes it.
    :param task: ``<dag>.<task>``: a server that this one starts is listed with it.
    :raises InputError: The machine is not one of Linux.
    """

    beginning: ClassVar[str] = "running {} in the Spark that stays, which is started if there is none"

    def __init__(self, *, conf: Mapping[str, str], py_files: str, task: str, **named: Any) -> None:
        if sys.platform != "linux":
            raise InputError(
                f"server='auto' needs Linux, and this is {sys.platform}.",
                kept=KEPT,
                do="leave server out of the engine: each run starts Spark then",
            )
        super().__init__(conf=conf, py_files=py_files, **named)
        self._task = task
        self._of_session = {name: value for name, value in conf.items() if name.startswith(CONF)}
        of_server = {name: value for name, value in conf.items() if not name.startswith(CONF)}
        self._of_server = {"spark.scheduler.mode": "FAIR", **of_server}
        self._named = named
        self._archive = Path(py_files)

    def run(self, script: str, arguments: list[str]) -> None:
        """Run the application and wait for it.

        :raises ScopeProviderError: As ``SubmitHook`` does, of the server as well.
        """
        variables = self.variables()
        try:
            connection = self._connected(variables)
        except (AirflowException, OSError) as err:
            raise self._failure(err) from None
        if connection is None:
            raise self._ended_error()
        with connection:
            variables[SERVER_CONNECTION] = str(connection.fileno())
            variables["PYTHONPATH"] = os.pathsep.join([str(self._archive), variables.get("PYTHONPATH", "")])
            connection.sendall(json.dumps(self._of_session).encode() + b"\n")
            self.run_process(script, arguments, "", variables, pass_fds=[connection.fileno()])

    def server_command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command and the variables of a server with these settings, which this process becomes.

        :raises InputError: There is one already, or ``spark-submit`` is not installed.
        """
        variables = self._variables_of_server(self.variables())
        path = _folder() / self._server_name(variables)
        if running := state_of(path):
            raise InputError(
                f"A Spark server with the settings of {self._task} runs already: {path.name}, process "
                f"{running.pid}.",
                kept="that server",
                do=f"use it, or end it with `airflow scope spark-server stop {path.name}` and start again",
            )
        try:
            command, settings = self._prepared(path, math.inf)
        except OSError as err:
            raise self._failure(err) from None
        os.set_inheritable(settings, True)  # noqa: FBT003 - Python's
        return command, variables

    def command(self, application: str) -> list[str]:
        """Return the command line of a process of Python: Spark runs already."""
        return [self.variables()["PYSPARK_PYTHON"], application, *(self._application_args or ())]

    def _connected(self, variables: Mapping[str, str]) -> socket.socket | None:
        """Connect to the server with these settings, and start it if there is none.

        :return: None if the application was ended meanwhile.
        :raises AirflowException: The server does not start; what it said is in the log.
        """
        variables = self._variables_of_server(variables)
        path = _folder() / self._server_name(variables)
        connection = _connect(path)
        if connection is not None:
            return connection
        with _locked(path.with_suffix(".lock")) as is_locked:
            while not (self._ended or is_locked()):
                time.sleep(_LOOK_SECONDS)
            connection, process = _connect(path), None
            while connection is None and not self._ended:
                if process is None:
                    process = self._start(path, variables)
                elif process.poll() is not None:
                    text = path.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
                    self._process_spark_submit_log(iter(text.splitlines(keepends=True)))
                    msg = "the server did not start"
                    raise AirflowException(msg)
                time.sleep(_LOOK_SECONDS)
                connection = _connect(path)
            return connection

    def _variables_of_server(self, variables: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in variables.items() if name.startswith(_VARIABLES)}
        return {**kept, "PATH": variables["PATH"], **self.environment}

    def _server_name(self, variables: Mapping[str, str]) -> str:
        """Return the name of a server's socket: it tells nothing of the secrets among the settings."""
        defaults = defaults_file()
        command, path = self._submit_command("", "", []), variables["PATH"]
        started_with = [
            command,
            [shutil.which(program, path=path) for program in (command[0], "java")],
            self._of_server,
            {name: value for name, value in variables.items() if name != "PATH"},
            hashlib.sha256(self._archive.read_bytes()).hexdigest(),
            version("pyspark"),
            sys.version,
            defaults.read_text(encoding="utf-8", errors="replace") if defaults and defaults.exists() else "",
        ]
        text = json.dumps(started_with, sort_keys=True).encode()
        return hmac.new(_key(), text, hashlib.sha256).hexdigest()[:24]

    def _start(self, path: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command, settings = self._prepared(path, IDLE_SECONDS)
        try:
            # Not by `submit` of Airflow's hook, which waits for the end of what it starts: a server stays.
            with path.with_suffix(".log").open("wb") as log:
                return subprocess.Popen(  # noqa: S603
                    command,
                    env=dict(variables),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[settings],
                )
        finally:
            os.close(settings)

    def _prepared(self, path: Path, idle_seconds: float) -> tuple[list[str], int]:
        """Return the command that starts a server, and an open file, on no disk, which holds its settings."""
        archive = path.with_suffix(".zip")
        archive.write_bytes(self._archive.read_bytes())
        settings = os.memfd_create("settings")
        os.write(settings, properties(self._of_server).encode())
        arguments = [str(path), str(idle_seconds), self._task]
        return self._submit_command(str(archive), f"/proc/self/fd/{settings}", arguments), settings

    def _submit_command(self, archive: str, settings: str, arguments: list[str]) -> list[str]:
        starter = SubmitHook(
            conf={}, properties_file=settings, py_files=archive, application_args=arguments, **self._named
        )
        return starter.command(application.SERVER)


def _folder() -> Path:
    """Return the folder of this user's servers, which nobody else can open.

    :raises InputError: It is somebody else's, or open to others.
    """
    # Not XDG_RUNTIME_DIR: a shell has it, and a service of the same user does not.
    path = Path(tempfile.gettempdir(), f"airflow-provider-scope-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise InputError(
            f"The folder of the Spark server, {path}, is not this user's alone: others could use its Spark.",
            kept="everything; nothing was read or written",
            do=f"see whose it is (`ls -ld {path}`) and delete it, or leave server='auto' out of the engine",
        )
    return path


def _key() -> bytes:
    """Return a secret of this user's on this machine; the first one to ask makes it."""
    path = _folder() / "key"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent) as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            with suppress(FileExistsError):  # another task was faster
                os.link(file.name, path)
    return path.read_bytes()


def _connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_PATH)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{path.name}")  # a socket's path has at most 108 bytes
    except OSError as err:
        connection.close()
        if err.errno not in (errno.ENOENT, errno.ECONNREFUSED):
            raise
        return None
    finally:
        os.close(folder)
    with connection:
        number = fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, _FIRST_NUMBER)
    return socket.socket(fileno=number)


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a running server says of itself."""

    name: str
    """That of its socket."""
    pid: int
    """The process of Java."""
    task: str
    """The one that it was started for, ``<dag>.<task>``."""
    master: str
    started_ms: int
    """Milliseconds since 1970."""
    runs: int
    """How many use it."""
    used_mb: int
    """How much of Java's memory is in use."""
    max_mb: int
    """How much Java may use."""


def servers() -> list[ServerState]:
    """Return the servers of this user that run, the oldest first.

    :raises InputError: Their folder is open to others; or one does not answer.
    """
    states = [state_of(path) for path in sorted(_folder().iterdir()) if path.is_socket()]
    return sorted(filter(None, states), key=lambda state: state.started_ms)


def state_of(path: Path) -> ServerState | None:
    """Ask a server for its state; None if it does not run.

    :raises InputError: It does not answer.
    """
    connection = _connect(path)
    if connection is None:
        return None
    with connection, connection.makefile("r", encoding="utf-8") as answer:
        pid, *_ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.sendall(b'{"question": "state"}\n')
            return ServerState(path.name, **json.loads(answer.readline()))
        except (OSError, ValueError) as err:
            raise InputError(
                f"The Spark server {path.name} does not answer: {err}.",
                kept="the server, and whatever runs in it",
                do=f"end its process with `kill -9 {pid}`; the runs in it fail, and are retried",
            ) from None


def end(state: ServerState, report: Callable[[str], None]) -> None:
    """End a server: it takes no runs any more, and ends when those that use it have ended."""
    process = os.pidfd_open(state.pid)
    try:
        (_folder() / state.name).unlink(missing_ok=True)
        if state.runs:
            runs = counted(state.runs, "run")
            report(f"waiting for {runs}; `kill {state.pid}` ends them, too: they fail, and are retried")
        select.select([process], [], [])
    finally:
        os.close(process)


@contextmanager
def _locked(path: Path) -> Iterator[Any]:
    """Open a lock file, and give a function that tries to lock it; the lock ends with the block."""
    with path.open("w") as file:

        def is_locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        yield is_locked
