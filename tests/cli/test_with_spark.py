"""The one thing that the commands need Spark for: an empty transaction."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Desk
from tests.crash.world import DeltaWorld

pytestmark = pytest.mark.spark


def test_a_batch_is_given_up_by_spark_and_the_next_run_loads_what_is_there(tmp_path, capsys):
    desk = Desk(DeltaWorld(tmp_path), capsys)
    desk.loaded("a.parquet")
    desk.vanished("b.parquet", 1)

    said = desk.table_command("abandon", "1", "--yes")

    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].startswith("starting Spark for 1 batch ")
    assert lines[-1] == "batch 1 is abandoned; the next run loads those of its files that still exist"
    assert desk.world.records()[f"commits/{1:020}"][0]["abandoned"] is True
    assert desk.rows_are_those_of("a.parquet")
    desk.world.show("b.parquet")
    desk.world.run()
    assert desk.rows_are_those_of("a.parquet", "b.parquet")
