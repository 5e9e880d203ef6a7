"""The benchmarks still run: nobody runs them for months, and the code that they measure goes on changing."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.loads

SMALL = {
    "ingest_vs_structured_streaming.py": "--files 20 --rows 10 --files-per-batch 10 --repeats 1",
    "discovery.py": "--files 3000",
    "history.py": "--batches 1000 --files 2000",
    "strict_reading.py": "--rows 500 --files 5 --repeats 1",
    "merge.py": "--rows 2000 --changed 100 --repeats 1",
    "cursor.py": "--rows 4000 --loads 2 --new 10",
    "cdf.py": "--rows 2000 --changes 40 200 --repeats 1",
    "latency.py": "--runs 1 --tables 2",
    "scale.py": "--tables 1 2 --runs 1 --tasks 20 --seconds 5",
}


def test_every_benchmark_is_run():
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    make = (ROOT / "Makefile").read_text()

    assert set(SMALL) == scripts == set(re.findall(r"benchmarks/(\w+[.]py)", make))


@pytest.mark.parametrize("script", SMALL)
def test_a_benchmark_runs_to_its_last_line(script: str):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, *SMALL[script].split()],
        capture_output=True,
        check=False,  # with so little data it may miss its target, which is a status of its own
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=900,
    )

    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert re.search(r"ratio|CPU", done.stdout.splitlines()[-1]), done.stdout
