"""Jars from Maven, fetched as Spark fetches them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

from airflow_provider_scope.engines.application import EXCLUDED_PACKAGES

HOME = Path(pyspark.__file__).parent


def java() -> str:
    """Return the program that Spark would run."""
    return str(Path(os.environ["JAVA_HOME"], "bin/java")) if "JAVA_HOME" in os.environ else "java"


def fetch(*packages: str, cache: Path | None = None) -> None:
    """Bring packages, by their coordinates, into a cache of Ivy; None is Spark's own.

    :raises RuntimeError: Spark could not resolve them.
    """
    command = [
        *(HOME / "bin/spark-submit", "--packages", ",".join(packages)),
        *("--exclude-packages", ",".join(EXCLUDED_PACKAGES)),
        *(("--conf", f"spark.jars.ivy={cache}") if cache else ()),
        # It prints a version and starts nothing: all that is wanted is the jars.
        *("--class", "org.apache.hadoop.util.VersionInfo", "spark-internal"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"Spark could not resolve {', '.join(packages)}: {done.stderr.strip()[-500:]}"
        raise RuntimeError(msg)
