"""Try the oldest and the newest versions that are promised; ``make test-versions``.

Each has an environment of its own, below a temporary folder. The package is built and installed. What is
tested is whether it works at all: every module, the quickstart, a deferral, a change data feed (which is read
by a plan inside of Delta).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
TOOLS = (
    "hypothesis",
    "psutil",
    "psycopg2-binary",
    "pytest>=9",
    "pytest-randomly",
    "pytest-socket",
    "pytest-xdist",
)
TESTS = (
    "tests/versions",
    "tests/docs/test_quickstart.py",
    "tests/spark/test_feed.py",
    "tests/airflow/test_first_hour.py::test_no_file_is_no_error_but_is_said",
    "tests/airflow/test_scope_submit.py::test_a_dag_runs_its_script_as_one_job",
    "tests/airflow/test_scope_submit.py::test_a_long_job_is_waited_for_by_the_trigger",
)
INSTALLED = """
import importlib.metadata, pathlib, sys
import airflow_provider_scope

assert pathlib.Path(airflow_provider_scope.__file__).with_name("py.typed").is_file()
names = ("apache-airflow", "pyspark", "delta-spark", "deltalake", "pyarrow")
print("Python", sys.version.split()[0], *(f"{name} {importlib.metadata.version(name)}" for name in names))
"""


class Versions(NamedTuple):
    """What is installed in an environment."""

    name: str
    python: str
    """A version that uv finds, or the path of an interpreter."""
    resolution: str


PROMISED = (
    Versions("oldest", os.environ.get("PYTHON_OLDEST", "3.11"), "lowest-direct"),
    Versions("newest", os.environ.get("PYTHON_NEWEST", "3.12"), "highest"),
)


def run(*command: str | Path, folder: Path = ROOT) -> None:
    # The tests' own commands take the package that is installed; without it they take the one in this folder.
    subprocess.run(list(map(str, command)), cwd=folder, env={**os.environ, "PYTHONPATH": ""}, check=True)


def check(versions: Versions, folder: Path) -> None:
    """Make the environment, and run the tests in it."""
    home = folder / versions.name
    python = home / "bin" / "python"
    install = (UV, "pip", "install", "-q", "--python", python)
    run(UV, "venv", "-q", "--python", versions.python, home)
    # From the folder: of a wheel, `lowest-direct` would take the newest of everything.
    run(*install, "--resolution", versions.resolution, f"{ROOT}[all]")
    run(*install, *TOOLS)
    run(python, "-c", INSTALLED, folder=folder)
    run(python, "-m", "pytest", *TESTS, "-m", "slow or not slow", "-p", "no:cacheprovider")


def main() -> None:
    """Check the versions that are named, or all."""
    wanted = sys.argv[1:] or [versions.name for versions in PROMISED]
    folder = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-versions-"))
    try:
        for versions in PROMISED:
            if versions.name in wanted:
                check(versions, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
