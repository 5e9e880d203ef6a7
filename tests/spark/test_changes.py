"""The changes of a Delta table by version, committed with the state behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import ChangeFeedError
from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

KEY = {"kind": "merge", "primary_key": ["id"]}
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture(autouse=True)
def _warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    warm.use(monkeypatch, spark)


class Source:
    """A Delta table that is changed by statements, and a pipeline that loads its feed."""

    def __init__(self, spark: Any, folder: Path, columns: str = "id INT, v STRING", **settings: str) -> None:
        self.spark, self.folder = spark, folder
        self.path = folder / "source"
        self.name = f"delta.`{self.path}`"
        pairs = ", ".join(f"'{k}' = '{v}'" for k, v in {**FEED, **settings}.items())
        spark.sql(f"CREATE TABLE {self.name} ({columns}) USING delta TBLPROPERTIES ({pairs})")

    def do(self, *statements: str) -> None:
        for one in statements:
            self.spark.sql(one.replace("@s", self.name))

    def pipe(self, write: Any = KEY, **more: Any) -> warm.Pipe:
        arguments = {n: more.pop(n) for n in ("sql", "table", "full_refresh") if n in more}
        return warm.Pipe(
            self.folder, {"source": {"table": str(self.path), **more}, "write": write, **arguments}
        )


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Source:
    return Source(spark, tmp_path)


def test_inserts_updates_and_deletes_reach_the_target(source: Source) -> None:
    source.do("INSERT INTO @s VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    pipe = source.pipe()
    first = pipe.run()
    again = pipe.run()
    source.do("UPDATE @s SET v = 'B' WHERE id = 2", "DELETE FROM @s WHERE id = 1")
    source.do("INSERT INTO @s VALUES (4, 'd')")
    second = pipe.run()

    assert pipe.rows("id", "v") == [(2, "B"), (3, "c"), (4, "d")]
    assert [len(one.batches) for one in (first, again, second)] == [1, 0, 1]
    assert "version 1 of" in again.text()
    state = pipe.state()
    assert (state["identifier"], state["version"], state["first"]) == ("default", 4, 0)


def test_append_keeps_every_change(source: Source) -> None:
    source.do("INSERT INTO @s VALUES (1, 'a')")
    pipe = source.pipe("append")
    pipe.run()
    source.do("UPDATE @s SET v = 'b'", "DELETE FROM @s")
    pipe.run()

    assert pipe.rows("_commit_version", "_change_type", "id", "v") == [
        (1, "insert", 1, "a"),
        (2, "update_postimage", 1, "b"),
        (2, "update_preimage", 1, "a"),
        (3, "delete", 1, "b"),
    ]
    assert None not in [row[0] for row in pipe.rows("_commit_timestamp")]


def test_a_source_without_a_feed_is_refused(source: Source) -> None:
    source.do("ALTER TABLE @s SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    with pytest.raises(ChangeFeedError, match="has no change data feed"):
        source.pipe().run()
