"""A real Apache Livy on loopback; its batches run in Spark's local mode, of the version that pyspark has."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.jars import HOME, java
from tests.support.kept import kept
from tests.support.processes import guard

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "0.7.1-incubating"
LISTENS = re.compile(r"Started ServerConnector@.*\{127\.0\.0\.1:(\d+)\}")
START_SECONDS = 120.0

_LOG = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c{1} %m%n
"""
_SPARK = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def install() -> Path:
    """Return the folder with Livy's jars below the virtual environment; fetch them if it is not there.

    Spark's own --packages leaves out what Spark has, such as Scala. Livy needs an older one, so Ivy itself is
    called.

    :raises RuntimeError: Ivy could not resolve them.
    """
    return kept(f"livy-server-{VERSION}", _fetch)


class Livy:
    """A server whose batches may name the files of one folder.

    All processes end with this one, however it ends: server and batches are in the process group of a guard,
    which kills the group when its pipe is closed.
    """

    def __init__(self, files: Path, settings: Mapping[str, str] | None = None) -> None:
        """Start a server on a free port.

        :param files: the folder that batches may name files of.
        :param settings: of livy.conf, in place of the ones here.
        :raises RuntimeError: it did not start.
        """
        self.jars = install()
        self.folder = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-livy-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.log = self.folder / "log"
        self.settings = {
            "livy.server.host": "127.0.0.1",
            "livy.spark.master": "local[1]",
            "livy.spark.deploy-mode": "client",
            "livy.file.local-dir-whitelist": str(files),
            **(settings or {}),
        }
        (self.folder / "log4j.properties").write_text(_LOG)
        _write(self.folder / "spark-defaults.conf", _SPARK)
        self.guard = guard()
        atexit.register(self.stop)
        self.port = 0
        self._start()

    @property
    def url(self) -> str:
        """Where its REST interface is."""
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Kill the server; its batches go on."""
        self.server.kill()
        self.server.wait()

    def restart(self) -> None:
        """Start the server again on its port, after a kill if it still runs.

        It has lost all batches, as Livy recovers them with YARN only: it counts from 0 again, and those that
        still run are nobody's.
        """
        self.kill()
        self._start()

    def stop(self) -> None:
        """End the server and all its batches."""
        self.guard.stdin.close()
        self.guard.wait()
        self.server.wait()

    def _start(self) -> None:
        _write(self.folder / "livy.conf", {**self.settings, "livy.server.port": str(self.port)})
        with self.log.open("w") as log:
            self.server = subprocess.Popen(
                [
                    *(java(), "-Xmx512m", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED"),
                    *("-cp", f"{self.folder}:{self.jars}/*", "org.apache.livy.server.LivyServer"),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "LIVY_CONF_DIR": str(self.folder),
                    "LIVY_LOG_DIR": str(self.folder),
                    "SPARK_HOME": str(HOME),
                    "SPARK_CONF_DIR": str(self.folder),
                    "PYSPARK_PYTHON": sys.executable,
                },
                process_group=self.guard.pid,
            )
        self.port = self._listening()

    def _listening(self) -> int:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.server.poll() is None:
            listens = LISTENS.search(self.log.read_text())
            if listens:
                return int(listens[1])
            time.sleep(0.1)
        msg = f"Livy did not start: {self.log.read_text()[-2000:]}"
        raise RuntimeError(msg)


def _fetch(folder: Path) -> Path:
    (ivy,) = (HOME / "jars").glob("ivy-*.jar")
    command = [
        *(java(), "-cp", ivy, "org.apache.ivy.Main", "-m2compatible", "-warn", "-cache", folder / "cache"),
        *("-dependency", "org.apache.livy", "livy-server", VERSION),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{folder}/jars/[organisation]_[artifact]-[revision](-[classifier]).[ext]"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"Ivy could not resolve Livy: {(done.stdout + done.stderr).strip()[-500:]}"
        raise RuntimeError(msg)
    return folder / "jars"


def _write(file: Path, settings: Mapping[str, str]) -> None:
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
