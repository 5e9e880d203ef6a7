"""What a table carries beside its rows stays, whatever write a batch is made by.

Delta keeps some of it and drops some, depending on the statement; the table here carries all of it at once.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.specs import Merge, Scd2
from airflow_provider_scope.specs.write import for_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark

COLUMNS = """
    id INT NOT NULL COMMENT 'the key',
    text STRING,
    place STRING DEFAULT 'here',
    twice INT GENERATED ALWAYS AS (id * 2),
    number BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 100)"""
VERSIONS = "_valid_from TIMESTAMP, _valid_to TIMESTAMP, _row_hash STRING"
PROPERTIES = {
    "delta.enableRowTracking": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.enableTypeWidening": "true",
    "delta.columnMapping.mode": "name",
    "delta.checkpointPolicy": "v2",
    "delta.feature.allowColumnDefaults": "supported",
    "team": "somebody else",
}
KEY = ("id",)
WRITES: dict[str, tuple[dict[str, Any], str]] = {
    "append": ({}, "1a 2b 2* 3*"),
    "replace where": ({"mode": "overwrite", "where": "id >= 2"}, "1a 2* 3*"),
    "upsert": ({"write": for_plan(Merge(strategy="upsert", primary_key=KEY))}, "1a 2* 3*"),
    "delete-insert": ({"write": for_plan(Merge(primary_key=KEY))}, "1a 2* 3*"),
    "scd2": ({"write": for_plan(Scd2(merge_key=KEY))}, "1a 2b 2* 3*"),
    "replace": ({"mode": "overwrite"}, "2* 3*"),
}
"""Name -> how the rows 2 and 3 are written, and the rows of the table then, `*` for the text of these."""
_MOVING = ("delta.identity.highWaterMark", "rowIdHighWaterMark")
"""Numbers that grow with the rows."""


def carried(table: Path) -> dict[str, Any]:
    """Return the newest protocol, metadata and domains of a table, as its log has them."""
    newest: dict[str, Any] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind == "protocol":
                newest[kind] = {
                    name: sorted(value) if isinstance(value, list) else value
                    for name, value in action.items()
                }
            elif kind == "metaData":
                newest["schema"] = still(json.loads(action.pop("schemaString")))
                newest |= {f"metadata {name}": value for name, value in action.items()}
                newest["metadata configuration"] = still(action["configuration"])
            elif kind == "domainMetadata":
                newest[f"domain {action['domain']}"] = still(json.loads(action["configuration"]))
    return newest


def still(value: Any) -> Any:
    """Leave out the numbers that grow with the rows."""
    if isinstance(value, dict):
        return {name: still(inner) for name, inner in value.items() if name not in _MOVING}
    return [still(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def of_somebody_else(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    table: Path = tmp_path_factory.mktemp("features") / "table"
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in PROPERTIES.items())
    spark.sql(
        f"CREATE TABLE delta.`{table}` ({COLUMNS}) USING delta "
        f"COMMENT 'a table of somebody else' CLUSTER BY (text, id) TBLPROPERTIES ({properties})"
    )
    spark.sql(f"ALTER TABLE delta.`{table}` ADD CONSTRAINT small CHECK (id < 100)")
    return table


@pytest.mark.slow
@pytest.mark.parametrize(
    "writes",
    [
        ["append", "replace where", "upsert", "replace"],
        *(pytest.param([write], marks=pytest.mark.loads) for write in ("delete-insert", "scd2")),
    ],
    ids=" ".join,
)
def test_all_that_a_table_carries_stays(bench: Bench, of_somebody_else: Path, writes: list[str]) -> None:
    shutil.copytree(of_somebody_else, bench.table)
    if "scd2" in writes:
        bench.spark.sql(f"ALTER TABLE delta.`{bench.table}` ADD COLUMNS ({VERSIONS})")
    before = carried(bench.table)
    more: dict[str, Any] = {"sql": "SELECT CAST(id AS INT) AS id, text FROM @data", "schema_evolution": "add"}
    rule = {name: value for name, value in WRITES[writes[0]][0].items() if name == "write"}
    bench.run(bench.batch(0, bench.parquet("a.parquet", id=[1, 2], text=["a", "b"])), **more, **rule)

    for seq, write in enumerate(writes, start=1):
        of_batch, kept = dict(WRITES[write][0]), WRITES[write][1].replace("*", str(seq))
        rule = {"write": of_batch.pop("write")} if "write" in of_batch else {}
        if write == "replace":
            of_batch |= {"overwrite_start": seq, "refresh_start": seq}
        file = bench.parquet(f"{seq}.parquet", id=[2, 3], text=[str(seq)] * 2)
        bench.run(bench.batch(seq, file, **of_batch), **more, **rule)

        after = carried(bench.table)
        assert {name: after.get(name) for name in before} == before, write
        rows = bench.spark.read.format("delta").load(str(bench.table))
        texts = sorted((row.id, row.text, row.place, row.twice) for row in rows.collect())
        expected = [(int(row[0]), row[1], "here", 2 * int(row[0])) for row in kept.split()]
        assert texts == sorted(expected), write
        assert rows.select("number").distinct().count() == len(texts)


def test_a_batch_without_rows_is_committed_to_a_table_with_an_identity(bench: Bench) -> None:
    bench.spark.sql(
        f"CREATE TABLE delta.`{bench.table}` (number BIGINT GENERATED ALWAYS AS IDENTITY, id BIGINT, "
        "twice BIGINT GENERATED ALWAYS AS (id * 2)) USING delta"
    )
    file = bench.parquet("a.parquet", id=[1, 2])
    bench.run(bench.batch(0, file), schema_evolution="add")
    bench.run(bench.batch(1, file), fence=True)
    bench.run(bench.batch(2, file, mode="overwrite", where="twice = 4"), fence=True, empties=True)

    rows = bench.spark.read.format("delta").load(str(bench.table))
    assert [(row.id, row.twice) for row in rows.collect()] == [(1, 2)]
    assert DeltaTable(str(bench.table)).transaction_version(bench.plan.pipeline) == 2


@pytest.mark.slow
def test_a_refresh_with_other_columns_clusters_by_those_that_are_still_there(bench: Bench) -> None:
    columns, by = (
        "text STRING, s STRUCT<x: BIGINT>, `odd name` BIGINT, gone STRING",
        "text, s.x, `odd name`, gone",
    )
    bench.spark.sql(
        f"CREATE TABLE delta.`{bench.table}` ({columns}) USING delta CLUSTER BY ({by}) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    file = bench.parquet("a.parquet", TEXT=["b"], s=[{"x": 1}], more=[1.5], **{"odd name": [2]})

    bench.run(bench.batch(0, file, mode="overwrite", overwrite_start=0, refresh_start=0))

    rows = bench.spark.read.format("delta").load(str(bench.table))
    assert rows.columns == ["TEXT", "s", "more", "odd name"]
    detail = bench.spark.sql(f"DESCRIBE DETAIL delta.`{bench.table}`").head()
    assert detail.clusteringColumns == ["TEXT", "s.x", "`odd name`"]
    bench.spark.sql(f"OPTIMIZE delta.`{bench.table}`")
    assert DeltaTable(str(bench.table)).history(1)[0]["operationParameters"]["clusterBy"]
