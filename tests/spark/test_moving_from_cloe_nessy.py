"""A table that cloe-nessy's loader filled goes on here, by the steps of docs/moving_from_cloe_nessy.md."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import ChangeFeedError, UnknownRowsError
from tests.docs.pages import DOCS, blocks, section
from tests.support import warm
from tests.support.cloe_nessy import Loader

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

PAGE = DOCS / "moving_from_cloe_nessy.md"


class Desk:
    """A source, the loader that has followed it until now, and tasks of ours on its target."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.source = folder / "source"
        self.loader = Loader(spark, self.source, folder / "target", folder / "metadata")

    def do(self, *statements: str) -> None:
        for one in statements:
            self.spark.sql(one.replace("@s", f"delta.`{self.source}`"))

    def asked(self, number: int) -> list[Any]:
        """Return the rows of a query of the page."""
        query = blocks(section(PAGE, "## Where to begin"), "sql")[number].text
        query = query.replace("catalog.schema.metadata_delta_load", f"delta.`{self.folder}/metadata`")
        return [tuple(row) for row in self.spark.sql(query).collect()]

    def differing(self, target: Path) -> list[Any]:
        query = blocks(section(PAGE, "### Compare"), "sql")[0].text
        query = query.replace("/data/delta/orders_copy", str(target))
        return [
            tuple(row)
            for row in self.spark.sql(query.replace("/data/delta/orders", str(self.source))).collect()
        ]

    def task(self, target: str = "target", **source: Any) -> warm.Pipe:
        write = {"kind": "merge", "strategy": "upsert", "primary_key": ["id"]}
        arguments = {"source": {"table": str(self.source), "identifier": "nightly", **source}, "write": write}
        made = warm.Pipe(self.folder, arguments)
        made.table = self.folder / target
        return made

    def copy(self, name: str) -> str:
        shutil.copytree(self.folder / "target", self.folder / name)
        return name


def rows(path: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(path).to_pyarrow_table()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture
def desk(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Three rows that the loader has loaded, of which one was deleted in the source, and loaded again."""
    warm.use(monkeypatch, spark)
    made = Desk(spark, tmp_path)
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    made.do(f"CREATE TABLE @s (id INT, v STRING) USING delta {feed}")
    made.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    made.loader.run()
    made.do("DELETE FROM @s WHERE id = 1")
    return made


LEFT = [(1, "a")]
"""Row 1 was deleted in the source: the old loader wrote it back."""


@pytest.mark.loads
def test_a_table_of_cloe_nessy_goes_on_with_nothing_doubled_and_nothing_lost(desk: Desk) -> None:
    target = desk.folder / "target"
    desk.loader.run()
    assert desk.asked(0) == [(3,)]
    assert desk.asked(1) == []
    with pytest.raises(UnknownRowsError, match="set start_version to the version after"):
        desk.task().run()

    # The source has no version 3 yet: nothing is loaded, and the task still has to say where to begin.
    nothing = desk.task(start_version=3).run()
    assert nothing.batches == []
    assert ", before version " in nothing.text()
    with pytest.raises(UnknownRowsError):
        desk.task().run()

    desk.do("INSERT INTO @s VALUES (4, 'd')", "UPDATE @s SET v = 'C' WHERE id = 3")
    (batch,) = desk.task(start_version=3).run().batches
    assert batch.record.changes["inserted"] + batch.record.changes["updated"] == 2
    assert rows(target) == [*LEFT, (2, "b"), (3, "C"), (4, "d")]

    desk.do("DELETE FROM @s WHERE id = 2", "UPDATE @s SET id = 5 WHERE id = 4")
    later = desk.task()
    later.run()
    assert rows(target) == [*LEFT, (3, "C"), (5, "d")]
    assert rows(desk.source) == [(3, "C"), (5, "d")]
    assert later.run().batches == []


@pytest.mark.loads
def test_another_start_does_what_the_page_says(desk: Desk) -> None:
    desk.loader.run(dies=True)
    assert desk.asked(0) == [(2,)]
    assert [row[:2] for row in desk.asked(1)] == [(1, 2)]
    for name in ("low", "high"):
        desk.copy(name)
    desk.do("INSERT INTO @s VALUES (4, 'd')", "UPDATE @s SET v = 'C' WHERE id = 3")
    with pytest.raises(ChangeFeedError, match="start_version is 9"):
        desk.task(start_version=9).run()

    # The entry of the loader that died is not counted: its changes come again, and the delete with them.
    desk.task(start_version=2).run()
    desk.task("low", start_version=1).run()
    desk.task("high", start_version=4).run()

    source = [(2, "b"), (3, "C"), (4, "d")]
    assert rows(desk.source) == source
    assert rows(desk.folder / "target") == source
    assert rows(desk.folder / "low") == source
    assert rows(desk.folder / "high") == [*LEFT, (2, "b"), (3, "C")]
    assert desk.differing(desk.folder / "low") == []
    assert desk.differing(desk.folder / "high") == [(4, "d")]
    # What the page calls anew; and what full_refresh makes of a start_version that was left in the task.
    desk.task("high", full_load=True).run(full_refresh=True)
    desk.task("low", start_version=4).run(full_refresh=True)
    assert rows(desk.folder / "high") == source
    assert rows(desk.folder / "low") == [(3, "C")]
