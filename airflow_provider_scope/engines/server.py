"""A Spark that stays on this machine: it is found by all that it was started with, or started."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_scope.engines import application
from airflow_provider_scope.engines.submit import SubmitHook, defaults_file, properties
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.cursor.databases import CONF
from airflow_provider_scope.spark.plan import SERVER_CONNECTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IDLE_SECONDS = 600
"""How long a server waits for the next application; then it ends."""
_LOOK_SECONDS = 0.05
_VARIABLES = (
    *("AWS_", "AZURE_", "HADOOP_", "HOME", "JAVA_", "JDK_", "KRB5", "LANG", "LC_", "PATH", "PYSPARK_"),
    *("PYTHONPATH", "SPARK_", "TMPDIR", "TZ", "USER"),
)
"""How the names of the variables begin that a server gets: the name of its socket depends on them, too."""


class ServedHook(SubmitHook):
    """Runs an application in a session of a Spark that stays on this machine.

    A server is found by all that it was started with: with another version or setting, it is another one.
    Settings of a database belong to the session alone.

    :param conf: As ``SubmitHook`` takes it.
    """

    beginning: ClassVar[str] = "running {} in the Spark that stays, which is started if there is none"

    def __init__(self, *, conf: Mapping[str, str], py_files: str, **named: Any) -> None:
        super().__init__(conf=conf, py_files=py_files, **named)
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

    def command(self, application: str) -> list[str]:
        """Return the command line of a process of Python: Spark runs already."""
        return [self.variables()["PYSPARK_PYTHON"], application, *(self._application_args or ())]

    def _connected(self, variables: Mapping[str, str]) -> socket.socket | None:
        """Connect to the server with these settings, and start it if there is none.

        :return: None if the application was ended meanwhile.
        :raises AirflowException: The server does not start; what it said is in the log.
        """
        kept = {name: value for name, value in variables.items() if name.startswith(_VARIABLES)}
        kept |= self.environment
        path = _folder() / self._server_name(kept)
        connection = _connect(path)
        if connection is not None:
            return connection
        with _locked(path.with_suffix(".lock")) as is_locked:
            while not (self._ended or is_locked()):
                time.sleep(_LOOK_SECONDS)
            connection, process = _connect(path), None
            while connection is None and not self._ended:
                if process is None:
                    process = self._start(path, kept)
                elif process.poll() is not None:
                    text = path.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
                    self._process_spark_submit_log(iter(text.splitlines(keepends=True)))
                    msg = "the server did not start"
                    raise AirflowException(msg)
                time.sleep(_LOOK_SECONDS)
                connection = _connect(path)
            path.with_suffix(".conf").unlink(missing_ok=True)
            return connection

    def _server_name(self, variables: Mapping[str, str]) -> str:
        """Return the name of a server's socket: it tells nothing of the secrets among the settings."""
        defaults = defaults_file()
        has_defaults = defaults is not None and defaults.exists()
        started_with = [
            self._submit_command("", "", []),
            self._of_server,
            dict(variables),
            hashlib.sha256(self._archive.read_bytes()).hexdigest(),
            version("pyspark"),
            sys.version,
            defaults.read_text(encoding="utf-8", errors="replace") if defaults and has_defaults else "",
        ]
        text = json.dumps(started_with, sort_keys=True).encode()
        return hmac.new(_key(), text, hashlib.sha256).hexdigest()[:24]

    def _start(self, path: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        path.unlink(missing_ok=True)  # of a server that was killed
        archive, settings = path.with_suffix(".zip"), path.with_suffix(".conf")
        archive.write_bytes(self._archive.read_bytes())
        settings.touch(0o600)
        settings.write_text(properties(self._of_server), encoding="utf-8")
        with path.with_suffix(".log").open("wb") as log:
            return subprocess.Popen(  # noqa: S603
                self._submit_command(str(archive), str(settings), [str(path), str(IDLE_SECONDS)]),
                env=dict(variables),
                cwd=path.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _submit_command(self, archive: str, settings: str, arguments: list[str]) -> list[str]:
        starter = SubmitHook(conf={}, py_files=archive, application_args=arguments, **self._named)
        starter._properties_file, starter._path = settings, self.variables()["PATH"]  # noqa: SLF001
        return starter.command(application.SERVER)


def _folder() -> Path:
    """Return the folder of this user's servers, which nobody else can open.

    :raises InputError: It is somebody else's, or open to others.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = Path(base, f"airflow-provider-scope-{os.getuid()}")
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
    try:
        connection.connect(str(path))
    except OSError as err:
        connection.close()
        if err.errno not in (errno.ENOENT, errno.ECONNREFUSED):
            raise
        return None
    return connection


@contextmanager
def _locked(path: Path) -> Iterator[Any]:
    """Open a lock file; what is given tries to lock it, until the block ends."""
    with path.open("w") as file:

        def is_locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        yield is_locked
