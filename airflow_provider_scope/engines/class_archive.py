"""Java's archive of classes: what one JVM has loaded and checked, later ones take from a file.

The start of Spark loads some 25,000 classes, which is a third of the CPU time of a run with a small file. The
archive is a help and never a need: with whatever is wrong with it, Spark starts without.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from airflow.providers.common.compat.sdk import conf as airflow_conf

from airflow_provider_scope.engines.deploy_mode import defaults_file, spark_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger(__name__)

OPTIONS = "spark.driver.extraJavaOptions"
KEPT = 3
"""Archives in the folder, at the most; each has 200 MB."""

_IN_USE_SECONDS = 7 * 86_400.0
"""An archive that was used within this time is not deleted for another one: they would take turns."""
_AGAIN_SECONDS = 86_400.0
"""How long nobody tries again to make what could not be made."""
_FREE_BYTES = 2_000_000_000
"""A disk with less is left alone."""
_LARGE_BYTES = 32 << 30
"""From this size of a heap on, Java lays objects out otherwise."""
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}
_USERS_OWN = re.compile(
    r"-Xshare|Archive|SharedClass|-XX:[+]?AOT|-javaagent|-agent(?:lib|path)|--patch-module|"
    r"--upgrade-module-path|--limit-modules"
)
"""Options of somebody who has an archive already, or with which Java takes none."""
_PLAIN = re.compile(r"/[\w./+@=~-]*")
"""A folder that needs no quoting among Java's options, where a colon or a blank would end it."""
_CRASHES = {-4, -6, -7, -11}
"""SIGILL, SIGABRT, SIGBUS and SIGSEGV: how a JVM ends that maps what is no archive."""
_NO_START = ("Could not create the Java Virtual Machine", "Error occurred during initialization of VM")
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java warns of a thousand classes that it leaves out, and of each archive that it does not take."""
_USED = "-XX:SharedArchiveFile={} -XX:+VerifySharedSpaces " + _QUIET
"""With the checksum, which takes 0.05 s: a byte that a disk has changed would be code."""
_MADE = "-XX:ArchiveClassesAtExit={} " + _QUIET


def folder() -> Path | None:
    """Give the folder of the archives; None if they are switched off, or there is no place for them."""
    told = (airflow_conf.get("airflow_provider_scope", "class_archives", fallback="") or "").strip()
    if told.lower() == "off":
        return None
    with suppress(RuntimeError):  # a user without a home
        if told:
            return Path(told).expanduser()
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "airflow-provider-scope"
    return None


def find(place: Path, java: str, conf: Mapping[str, Any], loaded: Sequence[str | None]) -> ClassArchive:
    """Find the archive for an application, or decide to make it. What goes wrong is logged, and no error.

    :param place: The folder of the archives.
    :param java: What Java says of its version, and where it is.
    :param conf: Settings of the application.
    :param loaded: Jars and packages beside those of Spark.
    """
    try:
        name = key(java, conf, loaded)
        if name is None or not _PLAIN.fullmatch(str(place)):
            return ClassArchive()
        return _found(place, name)
    except OSError as err:
        logger.debug("There is no archive of Java's classes: %s", err)
        return ClassArchive()


def key(java: str, conf: Mapping[str, Any], loaded: Sequence[str | None]) -> str | None:
    """Give the name of the archive that a JVM may use: other classes, or another Java, have another one.

    :param java: What Java says of its version, and where it is.
    :param conf: Settings of the application.
    :param loaded: Jars and packages beside those of Spark.
    :return: None if the user's options leave no room for an archive.
    """
    named = [str(conf.get(name, "")) for name in (OPTIONS, "spark.driver.defaultJavaOptions")]
    variables = [
        os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
    ]
    variables.append(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    if any(_USERS_OWN.search(text) for text in (*named, *variables)):
        return None
    home = spark_home()
    if home is None:
        return None
    # Properties (-D) change no class, and may be secrets.
    flags = [word for text in (*named, *variables) for word in text.split() if not word.startswith("-D")]
    jars = sorted((jar.name, *_stamp(jar)) for jar in os.scandir(home / "jars"))
    defaults = defaults_file()
    parts = {
        "java": java,
        "jars": [str(home), jars],
        "loaded": list(loaded),
        "flags": flags,
        "large": _bytes(str(conf.get("spark.driver.memory", ""))) >= _LARGE_BYTES,
        "path": [
            conf.get("spark.driver.extraClassPath"),
            *(os.environ.get(name) for name in ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR")),
        ],
        "defaults": _stamp(defaults) if defaults and defaults.exists() else None,
    }
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:24]


def _bytes(size: str) -> int:
    found = re.fullmatch(r"(\d+)([kmgt]?)", size, re.IGNORECASE)
    return int(found[1]) << _UNITS.get(found[2].lower(), 0) if found else 0


def _stamp(file: Any) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


@dataclass
class ClassArchive:
    """The archive for one start of Spark, which uses it, or makes it, or does without.

    The first run of a key leaves a mark, and the next one makes the archive: a container that is gone after
    one task would make it in each, for nobody.
    """

    used: Path | None = None
    made: Path | None = None
    _target: Path | None = None
    _lock: TextIO | None = None

    @property
    def options(self) -> str:
        """Give what Java is told; empty if there is nothing to tell."""
        if self.used:
            return _USED.format(self.used)
        return _MADE.format(self.made) if self.made else ""

    def settings(self, conf: Mapping[str, Any]) -> dict[str, Any]:
        """Give the settings of the application with Java's options behind those that are there."""
        if not self.options:
            return dict(conf)
        return {**conf, OPTIONS: f"{conf.get(OPTIONS, '')} {self.options}".strip()}

    def is_to_blame(self, status: int | None, output: str, *, began: bool) -> bool:
        """Tell whether an application failed because of the archive only; one that broke Java is deleted.

        :param status: How its process ended.
        :param output: The last lines that it wrote.
        :param began: Whether the application itself began to work.
        """
        has_crashed = status in _CRASHES
        if not self.options or not (has_crashed or any(text in output for text in _NO_START)):
            return False
        if self.used:
            with suppress(OSError):
                self.used.with_name(f"{self.used.name.split('-')[0]}.tried").touch()
                self.used.unlink()
        # Java that cannot write the archive says so in these words when the application is done.
        return not began or (self.made is not None and not has_crashed)

    def close(self, *, is_whole: bool) -> None:
        """Let others see the archive that was made; or clean up after one that was not.

        :param is_whole: Whether Java ended as it should.
        """
        if self._lock is None or self.made is None or self._target is None:
            return
        with suppress(OSError):
            if is_whole and self.made.exists():
                with self.made.open("rb") as file:
                    os.fsync(file.fileno())
                    size = os.fstat(file.fileno()).st_size
                self.made.rename(self._target.with_name(f"{self._target.name}-{size}.jsa"))
        with suppress(OSError):
            self.made.unlink(missing_ok=True)
        with suppress(OSError):
            self._lock.close()


def _found(place: Path, name: str) -> ClassArchive:
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = place.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        # An archive is code: whoever may write it may run what they like in our name.
        return ClassArchive()
    for file in place.glob(f"{name}-*.jsa"):
        # Java dies of a file that was cut off, so its name has its size.
        if file.name == f"{name}-{file.stat().st_size}.jsa":
            os.utime(file)
            return ClassArchive(used=file)
        file.unlink()
    seen, tried = place / f"{name}.seen", place / f"{name}.tried"
    if not seen.exists() and not tried.exists():
        seen.touch()
        return ClassArchive()
    if tried.exists() and time.time() - tried.stat().st_mtime < _AGAIN_SECONDS:
        return ClassArchive()
    if shutil.disk_usage(place).free < _FREE_BYTES:
        return ClassArchive()
    lock = (place / "lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _make_room(place):
            lock.close()
            return ClassArchive()
        tried.touch()
        seen.unlink(missing_ok=True)
    except OSError:  # somebody else makes one
        lock.close()
        return ClassArchive()
    return ClassArchive(made=place / f"{name}.{os.getpid()}.tmp", _target=place / name, _lock=lock)


def _make_room(place: Path) -> bool:
    """Delete what nobody uses, while nobody makes an archive; tell whether there is room for one more."""
    now = time.time()
    archives = sorted(place.glob("*.jsa"), key=lambda file: file.stat().st_mtime)
    old = [file for file in archives if now - file.stat().st_mtime > _IN_USE_SECONDS]
    marks = [
        file
        for ending in ("seen", "tried")
        for file in place.glob(f"*.{ending}")
        if now - file.stat().st_mtime > _IN_USE_SECONDS
    ]
    too_many = len(archives) + 1 - KEPT
    for file in [*old[: max(too_many, 0)], *place.glob("*.tmp"), *marks]:
        file.unlink(missing_ok=True)
    return too_many <= len(old)
