"""The quickstart is done as it stands there, in an Airflow of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.following import follow
from tests.docs.pages import DOCS

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "quickstart.md"


@pytest.mark.loads
@pytest.mark.spark
def test_the_commands_give_what_is_shown(tmp_path: Path) -> None:
    replaced = {"/tmp/quickstart": str(tmp_path), "~/airflow": f"{tmp_path}/airflow"}

    assert follow(PAGE, tmp_path, replaced, dag=lambda text: ("none.py", text)) == 4
