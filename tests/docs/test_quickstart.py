"""The quickstart is done as it stands there, in an Airflow of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks

PAGE = DOCS / "quickstart.md"
AS_SHOWN = "/tmp/quickstart"


@pytest.mark.loads
@pytest.mark.spark
def test_the_commands_give_what_is_shown(tmp_path):
    """Each text is in the output of the commands before it."""
    dags = tmp_path / "airflow" / "dags"
    dags.mkdir(parents=True)
    bin_folder = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")}
    environment |= {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
    }
    shown, compared = "", 0
    for block in blocks(PAGE.read_text()):
        text = block.text.replace(AS_SHOWN, str(tmp_path))
        if block.language == "python":
            (dags / "fruit.py").write_text(text)
        elif block.language == "bash":
            done = subprocess.run(
                ["bash", "-ec", text],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            shown = done.stdout
            assert done.returncode == 0, shown
        elif block.language == "text":
            assert [line for line in text.splitlines() if line.strip() not in shown] == [], shown
            compared += 1
    assert compared == 3


def test_the_dag_is_short():
    (dag,) = blocks(PAGE.read_text(), "python")
    body = dag.text.split("with DAG")[1]

    assert body.count("\n") <= 12
