"""A batch is committed once, in order, with its number, and only if it fits the table."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from airflow_provider_scope.exceptions import InputError, SchemaMismatchError, SqlError
from airflow_provider_scope.spark.commit import DeltaLog
from airflow_provider_scope.specs import Merge
from airflow_provider_scope.specs.write import for_plan

pytestmark = pytest.mark.spark


def test_the_newest_transaction_is_found_below_many_foreign_commits(bench):
    bench.make(a=[1])
    for version in range(25):
        DeltaTable(str(bench.table)).create_write_transaction(
            [],
            "append",
            DeltaTable(str(bench.table)).schema(),
            commit_properties=CommitProperties(app_transactions=[Transaction("other", version)]),
        )

    bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2])))

    assert bench.rows() == [{"a": 1}, {"a": 2}]


def test_columns_are_matched_by_name_and_widened(bench):
    bench.make(a=[1], b=["x"])

    bench.run(
        bench.batch(1, bench.parquet("b.parquet", B=["y"], A=[2])),
        sql="SELECT B, CAST(A AS int) AS A FROM @data",
    )

    assert bench.rows() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.slow
def test_a_table_takes_no_length_and_no_default_of_a_table_that_the_select_joins(bench):
    names = bench.folder / "names"
    bench.spark.sql(
        f"CREATE TABLE delta.`{names}` (id BIGINT, code VARCHAR(2), pair CHAR(2), text STRING DEFAULT 'here' "
        "COMMENT 'for people') USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    bench.spark.sql(f"INSERT INTO delta.`{names}` VALUES (1, 'aa', 'aa', 'a')")
    joined = f"SELECT d.id, code, pair, text FROM @data AS d LEFT JOIN delta.`{names}` AS n ON d.id = n.id"
    bench.run(bench.batch(0, bench.parquet("a.parquet", id=[1])), sql=joined)
    longer = bench.parquet("b.parquet", id=[2], code=["long"], pair=["b"], text=["b"])
    bench.run(bench.batch(1, longer))

    fields = json.loads(DeltaTable(str(bench.table)).schema().to_json())["fields"]
    assert [field["metadata"] for field in fields] == [{}, {}, {}, {"comment": "for people"}]
    assert bench.rows() == [
        {"id": 1, "code": "aa", "pair": "aa", "text": "a"},
        {"id": 2, "code": "long", "pair": "b", "text": "b"},
    ]


def test_declared_columns_make_the_table_and_must_stay(bench):
    file = bench.parquet("a.parquet", a=[1])
    bench.run(bench.batch(0, file), table_columns={"a": "decimal(21,2)"})

    with pytest.raises(
        SchemaMismatchError, match=r"has the columns a decimal\(21,2\); declared are a double"
    ):
        bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2])), table_columns={"a": "double"})


def test_a_table_may_have_its_columns_in_another_order_than_declared_until_it_is_replaced(bench):
    file = bench.parquet("a.parquet", id=[1], city=["x"])
    bench.run(bench.batch(0, file), table_columns={"city": "string", "id": "bigint"})
    declared = {"id": "bigint", "city": "string"}

    bench.run(bench.batch(1, bench.parquet("b.parquet", id=[2], city=["y"])), table_columns=declared)

    assert bench.rows() == [{"city": "x", "id": 1}, {"city": "y", "id": 2}]

    refresh = bench.batch(2, file, mode="overwrite", refresh_start=2, overwrite_start=2)
    bench.run(refresh, table_columns=declared)

    assert bench.rows() == [{"id": 1, "city": "x"}]
    assert [field.name for field in DeltaTable(str(bench.table)).schema().fields] == ["id", "city"]


def test_a_type_that_spark_does_not_know_is_named(bench):
    with pytest.raises(InputError, match="'a' has the type 'strnig'"):
        bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1])), table_columns={"a": "strnig"})


JOINED = "SELECT a, p FROM @data JOIN (VALUES (1L), (2L)) AS kept(k) ON a = k"
LEFT = """SELECT a, p FROM (SELECT a, t.p FROM @data LEFT JOIN (VALUES (1L, 'x'), (2L, 'y'), (3L, ''))
    AS t(k, p) ON a = k) WHERE a < 3"""
SKIPPED = "SELECT a, p FROM @data ORDER BY a DESC OFFSET 1"
GROUPED = "SELECT max(a) AS a, p FROM @data GROUP BY p HAVING max(a) < 3"
UNITED = (
    "SELECT a, p FROM (SELECT a, p FROM @data UNION ALL SELECT 3L, '') JOIN (VALUES (1L), (2L)) ON a = col1"
)


@pytest.mark.parametrize(
    "sql", [JOINED, SKIPPED, *(pytest.param(sql, marks=pytest.mark.loads) for sql in (LEFT, GROUPED, UNITED))]
)
def test_rows_that_the_select_drops_are_not_checked(bench, sql):
    """Spark may move what raises an error below a join or an offset (SPARK-58627)."""
    file = bench.parquet("a.parquet", a=[1, 2, 3], p=["x", "y", ""])

    # All checks at once: of a partition column, and of a range that a table is made with.
    bench.run(bench.batch(0, file, mode="overwrite", where="p > ''"), sql=sql, partition_by=("p",))

    assert bench.rows() == [{"a": 1, "p": "x"}, {"a": 2, "p": "y"}]


def test_a_row_of_nulls_and_nested_values_is_checked_against_the_range(bench):
    file = bench.parquet("a.parquet", a=[1, None], s=[{"x": 1}, None])
    columns = {"s": "struct<x:bigint>", "a": "bigint"}
    batch = bench.batch(0, file, mode="overwrite", where="a = 1")

    error = bench.failure(batch, table_columns=columns)
    bench.run(batch, sql="SELECT * FROM @data WHERE a > 0", table_columns=columns)

    assert "a row lies outside of the range that is replaced: a = 1" in error.what
    assert bench.rows() == [{"a": 1, "s": {"x": 1}}]


def test_a_refresh_replaces_rows_and_may_change_columns_and_partitions(bench):
    bench.make(a=[1])
    before = DeltaTable(str(bench.table)).metadata().id
    refresh = bench.batch(
        1,
        bench.parquet("b.parquet", a=["new"], p=["x"]),
        mode="overwrite",
        overwrite_start=1,
        refresh_start=1,
    )

    bench.run(refresh, partition_by=("p",))

    assert bench.rows() == [{"a": "new", "p": "x"}]
    assert DeltaTable(str(bench.table)).metadata().id == before


def test_a_refresh_may_bring_a_type_that_delta_wants_to_be_asked_for(bench):
    bench.make(a=[1])
    refresh = bench.batch(
        1, bench.parquet("b.parquet", a=[2]), mode="overwrite", overwrite_start=1, refresh_start=1
    )

    bench.run(refresh, sql="SELECT a, timestamp_ntz'2026-01-02 03:04:05' AS t FROM @data")

    assert bench.rows() == [{"a": 2, "t": datetime(2026, 1, 2, 3, 4, 5)}]  # noqa: DTZ001


def test_a_refresh_replaces_all_partitions_in_a_session_of_dynamic_mode(bench):
    bench.make(["p"], a=[1, 2], p=["x", "y"])
    refresh = bench.batch(1, bench.parquet("b.parquet", a=[3], p=["x"]), mode="overwrite", overwrite_start=1)
    bench.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        bench.run(refresh, partition_by=("p",))
    finally:
        bench.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")

    assert bench.rows() == [{"a": 3, "p": "x"}]


def test_a_range_is_replaced_and_its_other_batches_stay_inside(bench):
    bench.make(a=[1, 2], d=["mon", "tue"])
    first = bench.batch(1, bench.parquet("b.parquet", a=[3], d=["tue"]), mode="overwrite", where="d = 'tue'")
    second = bench.batch(2, bench.parquet("c.parquet", a=[4], d=["tue"]), where="d = 'tue'")
    outside = bench.batch(3, bench.parquet("d.parquet", a=[5], d=["wed"]), where="d = 'tue'")

    bench.run(first)
    bench.run(second)

    assert "lies outside of the range" in bench.failure(outside).what
    error = bench.failure(replace(outside, mode="overwrite"))
    assert type(error) is SqlError
    assert "(d = 'tue') violated by row with values: - d : wed" in error.what
    assert bench.rows() == [{"a": 1, "d": "mon"}, {"a": 3, "d": "tue"}, {"a": 4, "d": "tue"}]


def test_properties_are_set_when_the_table_is_made_and_when_they_change(bench):
    wanted = {"delta.enableChangeDataFeed": "true", "team": "me"}
    bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1])), properties=wanted)
    assert DeltaTable(str(bench.table)).metadata().configuration == wanted

    more = {**wanted, "owner's": "a 'name'"}
    bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2])), properties=more)
    assert DeltaTable(str(bench.table)).metadata().configuration == more
    before = bench.version()

    bench.run(bench.batch(2, bench.parquet("c.parquet", a=[3])), properties=more)
    assert bench.version() == before + 1


def test_a_table_for_appends_alone_is_named_with_the_way_out(bench):
    bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1])), properties={"delta.appendOnly": "true"})
    entry = bench.batch(1, bench.parquet("b.parquet", a=[1]), mode="overwrite", where="a = 1")

    error = bench.failure(entry)

    assert isinstance(error, InputError)
    assert "cannot have rows changed or removed: it has delta.appendOnly" in error.what
    bench.spark.sql(error.do.partition("or ")[2])
    bench.run(entry)


def test_properties_that_become_a_part_of_the_protocol_are_set_once(bench):
    made = {"delta.feature.appendOnly": "supported", "delta.minWriterVersion": "7"}
    bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1])), properties=made)
    more = {**made, "delta.feature.deletionVectors": "supported", "delta.minReaderVersion": "3"}

    for number in (1, 2):
        bench.run(bench.batch(number, bench.parquet(f"{number}.parquet", a=[number])), properties=more)

    operations = [entry["operation"] for entry in DeltaTable(bench.table).history()]
    assert (operations.count("SET TBLPROPERTIES"), operations.count("WRITE")) == (1, 3)
    assert "deletionVectors" in DeltaTable(bench.table).protocol().reader_features


def test_a_table_that_forgets_transactions_is_refused(bench):
    bench.make(a=[1])
    bench.spark.sql(
        f"ALTER TABLE delta.`{bench.table}` SET TBLPROPERTIES "
        "('delta.setTransactionRetentionDuration' = 'interval 30 days')"
    )

    with pytest.raises(InputError, match="setTransactionRetentionDuration"):
        bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2])))

    assert bench.rows() == [{"a": 1}]


def test_a_pipeline_that_comes_second_to_make_the_table_still_has_to_fit_it(bench, monkeypatch):
    """Delta itself would append a SELECT without the column b, and put NULL there."""
    bench.make(a=[1], b=[1])
    looks, metadata = [], DeltaLog.metadata

    def first_without(log):
        """Return what was there just before the other one made the table, and then what is."""
        looks.append(log)
        return metadata(log) if len(looks) > 1 else None

    monkeypatch.setattr(DeltaLog, "metadata", first_without)

    with pytest.raises(SchemaMismatchError, match="b"):
        bench.run(bench.batch(0, bench.parquet("b.parquet", a=[2])), pipeline="2" * 8)

    assert bench.rows() == [{"a": 1, "b": 1}]


def test_a_local_table_stays_local_whatever_file_system_is_the_default(bench):
    """``fs.defaultFS`` of a cluster's ``core-site.xml`` is that of all paths without a scheme."""
    hadoop = bench.spark._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "elsewhere://cluster")
    try:
        bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1])), properties={"team.owner": "me"})
        bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2])))
    finally:
        hadoop.set("fs.defaultFS", before)

    assert bench.rows() == [{"a": 1}, {"a": 2}]


# ---- names that Delta refuses ------------------------------------------------------------------------


@pytest.mark.parametrize("evolution", ["fail", "add"])
def test_names_that_a_table_cannot_have_are_named_with_the_way_out(bench, evolution):
    bench.make(a=[1])
    odd = bench.batch(1, bench.parquet("b.parquet", **{"a": [2], "b (°C)": [{"c,d": 1}]}), mode="overwrite")
    odd = dataclasses.replace(odd, refresh_start=1, overwrite_start=1)

    error = bench.failure(odd, schema_evolution=evolution)
    bench.run(odd, sql="SELECT a, `b (°C)`.`c,d` AS b_C FROM @data", schema_evolution=evolution)

    assert isinstance(error, InputError)
    assert (
        f"The table file://{bench.table} cannot have columns with these names: `b (°C)`, `c,d`." in error.what
    )
    assert error.do.startswith("rename them in `sql`: SELECT `b (°C)` AS b_C, …")
    assert bench.rows() == [{"a": 2, "b_C": 1}]


def test_types_that_a_table_cannot_have_are_named_with_the_way_out(bench):
    entry = bench.batch(0, bench.parquet("a.parquet", a=[1]))
    day, time = "INTERVAL '1' DAY", "array(TIME'12:30:00')"
    place = "ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040')"

    error = bench.failure(entry, sql=f"SELECT a, {day} AS b, {time} AS c, {place} AS d FROM @data")
    sql = f"SELECT a, CAST({day} AS string) AS b, CAST({time} AS string) AS c FROM @data"
    bench.run(entry, sql=sql)

    assert isinstance(error, InputError)
    assert (
        "cannot have columns of these types, which Delta does not know: "
        "`b` interval day, `c` array<time(6)>, `d` geometry" in error.what
    )
    assert error.do.startswith("cast them before they are written, such as CAST(`b` AS string)")
    assert len(bench.rows()) == 1


def test_so_are_those_that_spark_and_delta_refuse_only_where_rows_are_merged(bench):
    bench.make(a=[1])
    entry = bench.batch(1, bench.parquet("a.parquet", a=[1]))
    upsert = for_plan(Merge(strategy="upsert", primary_key=("a",)))
    kinds = {"INTERVAL '1' DAY": "interval day", "TIME'12:30:00'": "time(6)"}
    kinds |= {"array('x' COLLATE UTF8_LCASE)": "array<string collate UTF8_LCASE>"}

    for value, kind in kinds.items():
        sql = f"SELECT a, {value} AS b FROM @data"
        error = bench.failure(entry, sql=sql, write=upsert, schema_evolution="add")

        assert isinstance(error, InputError), kind
        assert f"cannot have columns of these types, which Delta does not know: `b` {kind}" in error.what


@pytest.mark.slow
@pytest.mark.parametrize("evolution", ["fail", "add"])
def test_texts_may_be_declared_with_a_length(bench, evolution):
    declared = {"a": "bigint", "b": "varchar(3)", "c": "char(3)"}
    files = [bench.parquet(f"{n}.parquet", a=[n], b=["x"], c=["de"]) for n in range(2)]
    other = bench.folder / "other"
    bench.spark.sql(f"CREATE TABLE delta.`{other}` (a BIGINT, b VARCHAR(3), c CHAR(3)) USING delta")

    for table in (bench.plan.table, f"file://{other}"):
        for number, file in enumerate(files):
            entry = bench.batch(number, file)
            bench.run(entry, table=table, table_columns=declared, schema_evolution=evolution)

    assert bench.rows() == [{"a": n, "b": "x", "c": "de"} for n in range(2)]
    assert len(DeltaTable(str(other)).to_pyarrow_table()) == len(files)


def test_with_column_mapping_a_table_has_any_names(bench):
    properties = {"delta.columnMapping.mode": "name"}
    for number in (1, 2):
        file = bench.parquet(f"{number}.parquet", **{"a b": [number], "c,d": [f"x{number}"]})
        bench.run(bench.batch(number - 1, file), properties=properties)

    schema = json.loads(DeltaTable(str(bench.table)).schema().to_json())
    names = {f["metadata"]["delta.columnMapping.physicalName"]: f["name"] for f in schema["fields"]}
    rows = [
        {names[name]: value for name, value in row.items()}
        for path in DeltaTable(str(bench.table)).file_uris()
        for row in pq.read_table(path).to_pylist()
    ]
    assert sorted(rows, key=repr) == [{"a b": 1, "c,d": "x1"}, {"a b": 2, "c,d": "x2"}]
    assert DeltaTable(str(bench.table)).transaction_version(bench.plan.pipeline) == 1


@pytest.mark.slow
def test_a_fence_for_the_number_alone_keeps_the_rows_whatever_the_log_says_of_the_batch(bench):
    refresh = replace(bench.batch(3, bench.parquet("b.parquet", a=[2])), mode="overwrite", overwrite_start=3)
    write_deltalake(str(bench.table), pa.table({"a": [7]}))  # the table that somebody made again

    assert bench.run(refresh, fence=True) == 1
    assert bench.rows() == [{"a": 7}]

    again = replace(refresh, seq=4, overwrite_start=4)
    assert bench.run(again, fence=True, empties=True) == 2
    assert bench.rows() == []


def test_a_batch_without_rows_makes_a_table_whatever_length_its_texts_may_have(bench):
    bench.run(bench.batch(0), fence=True, table_columns={"v": "varchar(3)", "n": "int"})

    assert [field.name for field in DeltaTable(str(bench.table)).schema().fields] == ["v", "n"]
