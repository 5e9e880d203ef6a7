"""Airflow's four processes, each of which can be killed, frozen and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import psutil

from tests.real_airflow.postgres import free_port
from tests.real_airflow.rest import Rest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEALTHY_WITHIN_SECONDS = 300.0
STOPS_WITHIN_SECONDS = 30.0
AIRFLOW = Path(sys.executable).parent / "airflow"


class Deployment:
    """An Airflow in a folder.

    :param folder: Its home; logs are below it.
    :param dags: The folder of the Dag files.
    :param database: URL of an empty database.
    :param environment: Settings and connections beside those that it needs to run at all.
    """

    def __init__(self, folder: Path, dags: Path, database: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.rest = Rest(f"http://127.0.0.1:{self.port}")
        (folder / "out").mkdir(parents=True)
        url = f"http://127.0.0.1:{self.port}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        self.environment = {
            **clean,
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API_AUTH__JWT_SECRET": "known to all processes of this test, and to nobody else",
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "8",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            **environment,
        }

    def start(self, triggerers: int = 1) -> None:
        """Make the database's tables, start all processes, and wait until each says that it is well.

        :param triggerers: How many; they are named ``triggerer 1`` and so on.
        """
        with (self.folder / "out" / "migrate").open("wb") as out:
            subprocess.run(
                [AIRFLOW, "db", "migrate"], env=self.environment, check=True, stdout=out, stderr=out
            )
        self.run("api-server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1")
        self.run("scheduler")
        self.run("dag-processor")
        for number in range(1, triggerers + 1):
            self.run("triggerer", process=f"triggerer {number}")
        deadline = time.monotonic() + HEALTHY_WITHIN_SECONDS
        while ill := self.rest.ill():
            if time.monotonic() > deadline:
                raise AssertionError(f"not healthy: {ill}; see {self.folder / 'out'}")
            time.sleep(0.5)

    def run(self, name: str, *options: str, process: str | None = None) -> None:
        """Start a process.

        :param process: Its name here, if there are more of its kind.
        """
        process = process or name
        environment = self.environment
        if name == "triggerer":
            # Its log server has a port of its own, and outlives a kill of its parent.
            environment = {**environment, "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port())}
        with self._output(process) as out:
            self.processes[process] = subprocess.Popen(
                [AIRFLOW, name, *options], env=environment, cwd=self.folder, stdout=out, stderr=out
            )

    def kill(self, process: str) -> None:
        """End a process with -9, its log server too; its other children are left alone."""
        popen = self.processes.pop(process)
        children = _children(popen.pid)
        popen.kill()
        popen.wait()
        for child in children:
            with suppress(psutil.Error):
                if "serve-logs" in " ".join(child.cmdline()) or "gunicorn" in child.name():
                    child.kill()

    def terminate(self, process: str) -> None:
        """End a process as an operator would."""
        popen = self.processes.pop(process)
        popen.terminate()
        try:
            popen.wait(STOPS_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()

    def tree(self, process: str) -> list[psutil.Process]:
        """Return a process and all below it."""
        pid = self.processes[process].pid
        return [psutil.Process(pid), *_children(pid)]

    def everything(self) -> list[psutil.Process]:
        """Return all processes that have this home, wherever they hang."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                # Workers rename themselves, and overwrite their environment by that.
                if one.cwd() == str(self.folder) or one.environ().get("AIRFLOW_HOME") == str(self.folder):
                    found.append(one)
        return found

    def stop(self) -> None:
        """End everything."""
        for name in sorted(self.processes, key=lambda name: name == "api-server"):
            with suppress(ProcessLookupError):
                self.processes[name].send_signal(signal.SIGCONT)
            self.terminate(name)
        for one in self.everything():
            with suppress(psutil.Error):
                one.kill()

    @contextmanager
    def _output(self, process: str) -> Iterator[IO[bytes]]:
        with (self.folder / "out" / process).open("ab") as out:
            yield out


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
