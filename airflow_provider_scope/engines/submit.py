"""``spark-submit`` as a process of the task: its output in a file, its events handed on."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.sdk import AirflowException, BaseHook
from airflow.sdk import Connection

from airflow_provider_scope.core.plan import EVENT
from airflow_provider_scope.exceptions import DeltaJarsError, SparkJobFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCAL_MASTER = "local[*]"


class SubmitHook(SparkSubmitHook):
    """Airflow's hook for ``spark-submit``, for an application that reports by events.

    The application's output goes to a file instead of the task's log, and the process leads a group
    of its own, so that nothing of Spark outlives a task that is killed.

    :param conn_id: A Spark connection; None is Spark in local mode. (The parent class takes a connection
        that does not exist for YARN.)
    """

    def __init__(
        self,
        *,
        conn_id: str | None,
        log_file: Path,
        on_event: Callable[[dict[str, Any]], None],
        **kwargs: Any,
    ) -> None:
        self._is_local = conn_id is None
        if conn_id is not None:
            BaseHook.get_connection(conn_id)  # a missing one is an error here, not YARN
        super().__init__(conn_id=conn_id or "local", **kwargs)
        self.log_file = log_file
        self.on_event = on_event
        self.tail: deque[str] = deque(maxlen=400)

    def get_connection(self, conn_id: str) -> Any:  # type: ignore[override]
        """Give the connection, or the one for local mode."""
        if self._is_local:
            return Connection(conn_id="local", conn_type="spark", host=LOCAL_MASTER)
        return BaseHook.get_connection(conn_id)

    def run(self, script: str, arguments: list[str]) -> None:
        """Run the application and wait for it.

        :raises SparkJobFailedError: It failed in a way that it could not report itself.
        :raises DeltaJarsError: Spark could not resolve Delta's jars.
        """
        self._application_args = arguments
        # The parent logs a command line of a thousand characters; ours is not worth a reader's minute.
        quiet = logging.getLogger(f"{__name__}.command")
        quiet.setLevel(logging.WARNING)
        self._log = quiet  # type: ignore[assignment]
        environment = dict(os.environ)
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
        environment["PYSPARK_PYTHON"] = environment.get("PYSPARK_PYTHON", sys.executable)
        try:
            self.submit(script, start_new_session=True, env=environment)
        except (AirflowException, OSError) as err:
            raise self._failure(err) from None
        finally:
            if self._submit_sp is not None:
                self._submit_sp.stdout.close()

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("a", encoding="utf-8", buffering=1) as file:
            for line in itr:
                self._take(str(line), file)

    def _take(self, line: str, file: TextIO) -> None:
        if line.startswith(EVENT):
            self.on_event(json.loads(line[len(EVENT) :]))
            return
        file.write(line)
        self.tail.append(line.rstrip())

    def _failure(self, err: Exception) -> SparkJobFailedError | DeltaJarsError:
        text = "\n".join(self.tail)
        if "unresolved dependency" in text or "FAILED DOWNLOADS" in text:
            return DeltaJarsError(
                "Spark could not resolve its packages: " + _unresolved(text),
                kept="everything; batches that were logged stay logged",
                do="check that the worker reaches a Maven repository; if it does, its local cache may hold a "
                ".pom without the .jar (delete io/delta in ~/.m2/repository and ~/.ivy2*); or name the "
                f"jars: SparkEngine(jars=[...]). Full log: {self.log_file}",
            )
        return SparkJobFailedError(
            f"spark-submit failed: {_last_error(self.tail) or err}",
            kept="the batches that are in the table; the others stay logged",
            do=f"the next try runs what is open again. Full log: {self.log_file}",
        )

    def end(self) -> None:
        """End the process group of a running application."""
        process = self._submit_sp
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)


def _unresolved(text: str) -> str:
    names = [line.strip(" :\t") for line in text.splitlines() if "unresolved dependency" in line]
    names += [line.strip(" :\t") for line in text.splitlines() if ".jar" in line and "::" in line]
    return "; ".join(dict.fromkeys(names))[:300] or "see the log"


def _last_error(tail: deque[str]) -> str:
    for line in reversed(tail):
        if "Exception" in line or "Error" in line:
            return line.strip()[:400]
    return tail[-1].strip()[:400] if tail else ""
