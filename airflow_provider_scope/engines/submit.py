"""``spark-submit`` as a process of the task: what it needs, its output in a file, its events handed on."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk import Connection

from airflow_provider_scope.engines.application import EXCLUDED_PACKAGES, KEPT
from airflow_provider_scope.exceptions import (
    DeltaJarsError,
    InputError,
    JavaMissingError,
    ScopeProviderError,
    SparkJobFailedError,
    how_to_install,
)
from airflow_provider_scope.failures import passing_advice, submit_cause
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.spark.plan import EVENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_provider_scope.engines.manager import Application


logger = logging.getLogger(__name__)

LOCAL = Connection(conn_id="local", conn_type="spark", host="local[*]")
END_SECONDS = 10.0
"""How long an application may take to end when it is asked to; then it is killed."""

_ENDS_WITH_WORKER = """exec 3<&0 </dev/null
(trap "" TERM; read _ <&3; kill -TERM -$$; sleep 5; kill -KILL -$$) >/dev/null 2>&1 &
exec "$@" 3<&-"""
"""A shell that becomes the application, and leaves a child behind which ends the application's process group.

Its standard input ends when the worker does, even by a kill -9. The child is in the group, too: so the number
of the group is nobody else's as long as it waits.
"""

_SECRET_NAME = re.compile(r"secret|password|passphrase|token|credential|key|sas", re.IGNORECASE)
_PLACE_OF_SECRET = re.compile(
    r"provider\.(?:path|type)\b|credentials?\.provider$|(?:token|password)[.-]?file\b|keytab$"
    r"|^spark\.kubernetes\.\w+\.(?:secrets|secretKeyRef)\.",
    re.IGNORECASE,
)
"""A setting that says where a secret is, or which class gets it, and holds none."""
_SECRET_INSIDE = re.compile(
    r"(?:secret|password|passphrase|token|credential)[\w.]*=(?:[\"']([^\"']+)[\"']|([^\s\"';,&]+))",
    re.IGNORECASE,
)
"""As in ``-Djavax.net.ssl.trustStorePassword=…``, among Java's options."""
_IVY_NAME = re.compile(r"^\s*:: (\S+#.*\S)\s*$", re.MULTILINE)
"""A line of Ivy's list of what it could not get: ``:: io.delta#delta-storage;4.4.0!delta-storage.jar``."""
_NO_KUBERNETES = f"a master on Kubernetes needs its provider: {how_to_install('kubernetes')}"
_OURS = ("event", "type")
"""What an event says of itself, and of its error, by words of this package."""
_SHORTEST_SECRET = 6
"""A shorter value, such as "true", would blank out half of the log."""


class SubmitHook(SparkSubmitHook):
    """Airflow's hook for ``spark-submit``, for an application that reports by events.

    The parent builds the command, starts the process and waits for it; here the process is another one. Its
    output goes to a file instead of the task's log. It leads a group of its own, so no process of Spark
    outlives a task that is killed. Settings go through a file that only this user can read: everybody on the
    machine can read a command line.

    :param environment: Variables of the process beside the task's own; no secrets.
    :param conf: Settings of the application. They win over ``spark-defaults.conf``.
    :param conn_id: A Spark connection; None is Spark in local mode. (The parent class takes a connection
        that does not exist for YARN.)
    """

    beginning: ClassVar[str] = "starting Spark for {} (about 7 s; the first run downloads Delta's jars)"
    """What a person is told before it runs; with how many batches it runs."""

    def __init__(
        self,
        *,
        conn_id: str | None,
        conf: Mapping[str, str],
        log_file: Path,
        on_event: Callable[[dict[str, Any]], None],
        environment: Mapping[str, str] | None = None,
        packages: Sequence[str] = (),
        jars: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        # A missing one is an error here, not YARN.
        self._spark_connection = LOCAL if conn_id is None else connection_of(conn_id)
        try:
            super().__init__(
                conn_id=conn_id or "local",
                packages=",".join(packages) or None,
                exclude_packages=",".join(EXCLUDED_PACKAGES) if packages else None,
                jars=",".join(jars) or None,
                **kwargs,
            )
        except (NameError, RuntimeError, ValueError) as err:
            # A NameError is how the hook says that it could not import Kubernetes' client.
            why = _NO_KUBERNETES if isinstance(err, NameError) else str(err).rstrip("!.")
            raise InputError(
                f"The Spark connection {conn_id!r} cannot be used: {why}.",
                kept=KEPT,
                do="correct the connection, or install what is missing on the worker; the next run loads "
                "the open batches",
            ) from err
        # The parent logs a command line of a thousand characters; ours is not worth a reader's minute.
        quiet = logging.getLogger(f"{__name__}.command")
        quiet.setLevel(logging.WARNING)
        self._log = quiet  # type: ignore[assignment]
        self.log_file = log_file
        self.on_event = on_event
        self.tail: deque[str] = deque(maxlen=400)
        self._ended = False
        self.settings = conf
        self.environment = dict(environment or {})
        self._secrets = secret_values(conf)

    def get_connection(self, conn_id: str) -> Any:  # type: ignore[override]  # noqa: ARG002 - one is known
        """Return the connection, or the one for local mode."""
        return self._spark_connection

    def run(self, script: str, arguments: list[str]) -> None:
        """Run the application and wait for it.

        :raises SparkJobFailedError: It failed in a way that it could not report itself.
        :raises InputError: Spark does not start with its settings.
        :raises DeltaJarsError: Spark could not resolve Delta's jars.
        """
        self.run_process(script, arguments, properties(self.settings), self.variables())

    def variables(self) -> dict[str, str]:
        environment = environment_without_airflow() | self.environment
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
        environment["PYSPARK_PYTHON"] = environment.get("PYSPARK_PYTHON", sys.executable)
        # Java takes the encoding of file names from the locale, and one that is named may not be installed.
        environment["LC_ALL"] = "C.UTF-8"
        return environment

    def run_process(
        self, script: str, arguments: list[str], settings: str, environment: dict[str, str], **popen: Any
    ) -> None:
        """Run the application as a process and wait for it; see ``run``.

        :param settings: The text of the file with the settings.
        :param popen: Further arguments of ``Popen``.
        """
        if self._ended:
            raise self._ended_error()
        self._application_args = arguments
        with tempfile.NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
            file.write(settings)
            file.flush()
            self._properties_file = file.name
            try:
                self.submit(script, stdin=subprocess.PIPE, start_new_session=True, env=environment, **popen)
            except (AirflowException, OSError) as err:
                raise self._failure(err) from None
            finally:
                self._stop()  # after a timeout or an interrupt the application still runs
                self._ended = True
                if self._submit_sp is not None:
                    self._submit_sp.stdin.close()
                    self._submit_sp.stdout.close()
                    self._submit_sp.wait()

    def _build_spark_submit_command(self, application: str) -> list[str]:
        return ["/bin/sh", "-c", _ENDS_WITH_WORKER, "sh", *self.command(application)]

    def command(self, application: str) -> list[str]:
        binary, *arguments = super()._build_spark_submit_command(application)
        if shutil.which(binary, path=self.variables()["PATH"]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), binary)
        return [binary, "--load-spark-defaults", *arguments]

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        if self._ended:  # `end` was called before there was a process that it could end
            self.end()
        # The parent's reader sets it, and its `submit` fails without it on Kubernetes, after all is done. In
        # client mode the exit code of spark-submit is that of the application.
        self._spark_exit_code = 0
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("a", encoding="utf-8", buffering=1) as file:
            for line in itr:
                self._take(str(line), file)

    def _take(self, line: str, file: TextIO) -> None:
        if line.startswith(EVENT):
            self.on_event(self._masked(json.loads(line[len(EVENT) :])))
            return
        line = self._masked(line)
        file.write(line)
        self.tail.append(line.rstrip())

    def _masked(self, value: Any) -> Any:
        """Replace the secrets in a text, or in those of an event; its names and kinds are ours."""
        if isinstance(value, dict):
            return {name: inner if name in _OURS else self._masked(inner) for name, inner in value.items()}
        for secret in self._secrets if isinstance(value, str) else ():
            value = value.replace(secret, "***")
        return value

    def _failure(self, err: Exception) -> ScopeProviderError:
        if self._ended:
            return self._ended_error()
        if isinstance(err, OSError):
            if self._submit_sp is None:
                return InputError(
                    f"spark-submit cannot be started: {err.strerror}: {err.filename}.",
                    kept=KEPT,
                    do="install pyspark on the worker; the next run loads the open batches",
                )
            return SparkJobFailedError(
                f"The log of Spark cannot be written: {err.strerror}: {err.filename}.",
                kept=KEPT,
                do="give the worker write access to it; the next try runs the open batches again",
            )
        text = "\n".join(self.tail)
        if "unresolved dependency" in text or "FAILED DOWNLOADS" in text:
            return DeltaJarsError(
                "Spark could not resolve its packages: " + _unresolved(text),
                kept="everything; batches that were logged stay logged",
                do="check that the worker reaches a Maven repository; if it does, its local cache may hold a "
                ".pom without the .jar (delete io/delta in ~/.m2/repository and ~/.ivy2*); or name the "
                f"jars: SparkEngine(jars=[...]). Full log: {self.log_file}",
            )
        if self._was_killed():
            return SparkJobFailedError(
                "The Spark application was killed from outside, with signal 9, as the operating system does "
                "when memory runs out.",
                kept=KEPT,
                do="check whether the machine's own log shows it (`dmesg`, or the container's status); "
                "then give the worker more memory, or Spark less (`spark.driver.memory` in `conf` of the "
                "engine), or make batches smaller. The next try runs the open batches again. Full log: "
                f"{self.log_file}",
            )
        cause, is_lasting = submit_cause(self.tail)
        if is_lasting:
            return InputError(
                f"Spark does not start: {cause.removeprefix('Java does not start: ')}",
                kept=KEPT,
                do="correct `conf`, `packages` or `jars` of the engine, or the worker's "
                f"spark-defaults.conf; the next run loads the open batches. Full log: {self.log_file}",
            )
        return SparkJobFailedError(
            f"spark-submit failed: {cause or self._exit(err)}",
            kept=KEPT,
            do=f"{passing_advice(cause)}. Full log: {self.log_file}",
        )

    def _was_killed(self) -> bool:
        # A shell in between ends with 128 and the signal of its child.
        return self._submit_sp is not None and self._submit_sp.returncode in (
            -signal.SIGKILL,
            128 + signal.SIGKILL,
        )

    def _exit(self, err: Exception) -> str:
        """Say how a process ended that told no cause; the parent's own text holds its whole command line."""
        if self._submit_sp is None:
            return str(err)
        return f"it gave no cause and ended with exit code {self._submit_sp.returncode}"

    def _ended_error(self) -> SparkJobFailedError:
        return SparkJobFailedError(
            "The Spark application was ended, because the task was killed or ran out of time.",
            kept=KEPT,
            do=f"the next try runs the open batches again. Full log: {self.log_file}",
        )

    def end(self) -> None:
        """End the process group of an application, and let none start any more.

        May be called by a signal handler, at any point of ``run``.
        """
        self._ended = True
        self._stop()

    def _stop(self) -> None:
        process = self._submit_sp
        if process is None or process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            _wait(process.pid, END_SECONDS)
            os.killpg(process.pid, signal.SIGKILL)  # whoever did not listen


def submit_application(
    application: Application,
    conf: Mapping[str, str],
    *,
    conn_id: str,
    log_file: Path | None,
    place: Callable[[Path], str] = str,
) -> None:
    """Submit an application whose driver a cluster runs; ``spark-submit`` ends when the cluster took it.

    :param conf: Settings for this kind of cluster. They win over those of the application.
    :param log_file: Where the output of ``spark-submit`` goes; a trigger has none, and submits nothing.
    :param place: Gives the place of a file of the application, as ``spark-submit`` is to name it.
    :raises InputError: Spark does not start with these settings.
    :raises SparkJobFailedError: The cluster did not take it.
    """
    if log_file is None:
        msg = "a trigger submits nothing"
        raise TypeError(msg)
    hook = SubmitHook(
        conn_id=conn_id,
        log_file=log_file,
        on_event=lambda _: None,  # it has none: the driver runs elsewhere
        conf={**application.conf, DEPLOY_MODE: "cluster", **conf},
        environment=application.environment,
        packages=application.packages,
        jars=application.jars,
        py_files=place(application.archive),
        name=application.name,
    )
    hook.run(place(application.script), list(application.arguments))


def secret_values(conf: Mapping[str, Any]) -> list[str]:
    """Return the values that the names of their settings, or names inside of them, call secret."""
    values = [
        str(value)
        for name, value in conf.items()
        if _SECRET_NAME.search(name) and not _PLACE_OF_SECRET.search(name)
    ]
    for value in conf.values():
        values += [quoted or plain for quoted, plain in _SECRET_INSIDE.findall(str(value))]
    return [value for value in values if len(value) >= _SHORTEST_SECRET]


def properties(settings: Mapping[str, str]) -> str:
    """Return settings as ``util.Properties`` reads them, each on a line of its own."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    text = re.sub(r"([\\=:#!])", r"\\\1", str(text)).replace("\n", "\\n").replace("\r", "\\r")
    return re.sub(r"^(?=\s)", r"\\", text)


def _wait(pid: int, seconds: float) -> None:
    """Wait for a child's end, and leave it to be reaped: its number stays its own until then."""
    deadline = time.monotonic() + seconds
    with suppress(ChildProcessError):
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)


def _unresolved(text: str) -> str:
    return "; ".join(dict.fromkeys(_IVY_NAME.findall(text)))[:300] or "see the log"


# ---- Java ----

_JAVA = 17
"""Spark 4 and Delta 4 are built for this version."""
_AIRFLOW = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__")


def environment_without_airflow() -> dict[str, str]:
    """Return the environment of a process that knows no Airflow: without its settings, which hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_AIRFLOW)}


def check_java() -> None:
    """Check for Java 17 or newer.

    :raises JavaMissingError: There is none, or an older one.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None or not Path(command).exists():
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no `java` on PATH"
        raise _java_missing(f"Spark needs Java {_JAVA}, but {where}.")
    try:
        process = subprocess.run(  # noqa: S603
            [command, "-version"],
            env=environment_without_airflow(),
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as err:
        raise _java_missing(f"{command} could not be run: {err.strerror}.") from err
    # "Picked up JAVA_TOOL_OPTIONS: ..." shows whatever somebody put there, passwords included.
    answer = "\n".join(line for line in process.stderr.splitlines() if not line.startswith("Picked up "))
    version = re.search(r'version "(?:1\.)?(\d+)', answer)
    if process.returncode or not version:
        raise _java_missing(f"`{command} -version` did not answer: {answer.strip()[:200]!r}.")
    if int(version[1]) < _JAVA:
        raise _java_missing(f"Spark needs Java {_JAVA}, but {command} is Java {version[1]}.")


def _java_missing(problem: str) -> JavaMissingError:
    return JavaMissingError(
        problem,
        kept="everything; batches that were logged stay logged",
        do=f"install a Java {_JAVA} runtime (Debian: apt-get install openjdk-{_JAVA}-jre-headless) and "
        "point JAVA_HOME at it on the worker",
    )


# ---- where the driver runs ----

DEPLOY_MODE = "spark.submit.deployMode"
_IN_DEFAULTS = re.compile(rf"^\s*{re.escape(DEPLOY_MODE)}(?:\s*[=:]\s*|\s+)(\S+)", re.MULTILINE)


def deploy_mode(connection: Connection | None, conf: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return where Spark's driver is to run, and which place says so: the first one, as Spark looks.

    :param connection: The Spark connection; None is local mode.
    :return: ``client`` or ``cluster``; and the place, empty if none says anything.
    """
    places: list[tuple[str, Any]] = [(f"conf[{DEPLOY_MODE!r}]", (conf or {}).get(DEPLOY_MODE))]
    if connection is not None:
        named = connection.extra_dejson.get("deploy-mode")
        file = defaults_file()
        places = [
            (f"The Spark connection {connection.conn_id!r}", named),
            *places,
            (str(file), _mode_of_defaults(file)),
            ("The variable DEPLOY_MODE of the worker", os.environ.get("DEPLOY_MODE")),
        ]
    for where, mode in places:
        if mode:
            return ("cluster" if str(mode).strip().lower() == "cluster" else "client"), where
    return "client", ""


def defaults_file() -> Path | None:
    """Return the file of settings that Spark takes on this machine; it need not exist."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if folder:
        return Path(folder, "spark-defaults.conf")
    home = spark_home()
    return home / "conf" / "spark-defaults.conf" if home else None


def spark_home() -> Path | None:
    """Return the folder of Spark: what the environment names, else that of pyspark."""
    named = os.environ.get("SPARK_HOME")
    if named:
        return Path(named)
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec and spec.origin else None


def _mode_of_defaults(file: Path | None) -> str | None:
    try:
        modes = _IN_DEFAULTS.findall(file.read_text(encoding="utf-8", errors="replace")) if file else []
    except OSError:
        return None  # there is none, as a rule
    return modes[-1] if modes else None


def cluster_mode_refused(where: str, connection: Connection | None) -> InputError:
    """Return the error for a driver that cannot run on the cluster.

    :param where: The place that asks for it.
    """
    do = "use client mode, where the driver runs on the worker: "
    if connection is None:
        why = "Spark in local mode has no other machine"
        do += f"leave {DEPLOY_MODE} out of conf, `client` is the default"
    else:
        why = f"the master {connection.host} takes no driver in Python that this package could wait for"
        do += "deploy mode `client` in the connection wins over conf and spark-defaults.conf. A master on "
        do += "YARN or Kubernetes, and a connection of type livy, run the driver on the cluster"
    return InputError(
        f"{where} asks for deploy mode cluster, which is not supported here: {why}.",
        kept="everything; nothing was read or written",
        do=do,
    )
