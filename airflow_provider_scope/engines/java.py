"""The Java that Spark runs on: what it is told, and whether it is there; Spark's own answer is a riddle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import JavaMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping

NEEDED = 17
"""Spark 4 and Delta 4 are built for Java 17."""


_AIRFLOW = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__")


def environment() -> dict[str, str]:
    """Give the environment of a process that knows no Airflow: without its settings, which hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_AIRFLOW)}


def locale(environment: Mapping[str, str]) -> dict[str, str]:
    """Give what lets Java find files whose names are not ASCII: it takes their encoding from the locale.

    Python takes UTF-8 where the locale is POSIX, or none is set. So does what it starts.
    """
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    named = next((environment[name] for name in names if environment.get(name)), "")
    return {"LC_ALL": "C.UTF-8"} if named in ("", "C", "POSIX") else {}


def check_java() -> str:
    """Check for Java 17 or newer.

    :return: Where it is, and what it says of its version.
    :raises JavaMissingError: There is none, or an older one.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if command is None or not Path(command).exists():
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no `java` on PATH"
        raise _missing(f"Spark needs Java {NEEDED}, but {where}.")
    try:
        done = subprocess.run(  # noqa: S603
            [command, "-version"], env=environment(), capture_output=True, text=True, check=False
        )
    except OSError as err:
        raise _missing(f"{command} could not be run: {err.strerror}.") from err
    # "Picked up JAVA_TOOL_OPTIONS: ..." shows whatever somebody put there, passwords included.
    answer = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("Picked up "))
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    if done.returncode or not found:
        raise _missing(f"`{command} -version` did not answer: {answer.strip()[:200]!r}.")
    if int(found[1]) < NEEDED:
        raise _missing(f"Spark needs Java {NEEDED}, but {command} is Java {found[1]}.")
    return f"{Path(command).resolve()}\n{answer}"


def _missing(what: str) -> JavaMissingError:
    return JavaMissingError(
        what,
        kept="everything; batches that were logged stay logged",
        do=f"install a Java {NEEDED} runtime (Debian: apt-get install openjdk-{NEEDED}-jre-headless) and "
        "point JAVA_HOME at it on the worker",
    )
