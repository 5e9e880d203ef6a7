"""The one thing that the commands need Spark for: an empty transaction."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Desk
from tests.crash.world import DeltaWorld
from tests.support import warm

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("is_submitted", [False, pytest.param(True, marks=pytest.mark.loads)])
def test_a_batch_is_given_up_by_spark_and_the_next_run_loads_what_is_there(
    tmp_path, capsys, monkeypatch, request, is_submitted
):
    if not is_submitted:
        warm.use_in_tasks(monkeypatch, request.getfixturevalue("spark"))
    desk = Desk(DeltaWorld(tmp_path), capsys)
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)

    said = desk.table_command("abandon", "1", "--yes")

    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].startswith("starting Spark for 1 batch ") is is_submitted
    assert lines[-1] == "batch 1 is abandoned; the next run loads those of its files that still exist"
    assert desk.world.records()[f"commits/{1:020}"][0]["abandoned"] is True
    assert desk.rows_are_those_of("a.parquet")
    desk.world.show("b.parquet")
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")
