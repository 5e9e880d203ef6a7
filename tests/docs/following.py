"""A page of commands, done as it stands there, in an Airflow of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def follow(
    page: Path,
    folder: Path,
    replaced: Mapping[str, str],
    *,
    dag: Callable[[str], tuple[str, str]],
    variables: Mapping[str, str] | None = None,
) -> int:
    """Run each command of a page, and see that each text is in the output of the commands before it.

    :param replaced: What the page says -> what it is here.
    :param dag: Makes the name and the content of a Dag file of each block of Python.
    :param variables: Further variables of the environment.
    :return: How many texts were compared.
    """
    dags = folder / "airflow" / "dags"
    dags.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")}
    environment |= {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT)),
        **(variables or {}),
    }
    shown, compared = "", 0
    for block in blocks(page.read_text()):
        text = block.text
        for there, here in replaced.items():
            text = text.replace(there, here)
        if block.language == "python":
            name, content = dag(text)
            (dags / name).write_text(content)
        elif block.language == "bash":
            done = subprocess.run(
                ["bash", "-ec", text],
                cwd=folder,
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
    return compared
