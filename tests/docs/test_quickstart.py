"""The quickstart is done as it stands there, in an Airflow of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.following import follow
from tests.docs.pages import DOCS, blocks

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "quickstart.md"


@pytest.mark.loads
@pytest.mark.spark
def test_the_commands_give_what_is_shown(tmp_path: Path) -> None:
    compared = follow(PAGE, tmp_path, {"/tmp/quickstart": str(tmp_path)}, dag=lambda text: ("fruit.py", text))

    assert compared == 3


def test_the_dag_is_short() -> None:
    (dag,) = blocks(PAGE.read_text(), "python")
    body = dag.text.split("with DAG")[1]

    assert body.count("\n") <= 12
