"""Columns of every type that a table of somebody else can have, as keys, over every write.

A row is found by its keys however the batch writes their values, and no other row is. Where that cannot be
promised, the batch is refused before anything is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import write_deltalake
from py4j.protocol import Py4JJavaError

from airflow_provider_scope.exceptions import InputError, MergeKeyError
from airflow_provider_scope.spark.commit import commit_once
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.specs import Merge, Scd2
from airflow_provider_scope.specs.write import for_plan

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = pytest.mark.spark

KEYS = {
    "CHAR(5)": ("'DE'", "'DE '", "'de'"),
    "VARCHAR(3)": ("'ab '", "'ab '", "'ab'"),
    "STRING NOT NULL": ("'a'", "'a'", "'A'"),
    "STRING COLLATE UTF8_BINARY": ("'a '", "'a '", "'A '"),
    "INT DEFAULT 5": ("5", "5S", "6"),
    "BINARY": ("X'6100'", "X'6100'", "X'61'"),
    "DECIMAL(10,4)": ("1.5BD", "1.50BD", "1.5001BD"),
    "DOUBLE": ("0D", "-0D", "1e-300D"),
    "FLOAT": ("float('NaN')", "float('NaN')", "float('Infinity')"),
    "TIMESTAMP_NTZ": (
        "TIMESTAMP_NTZ'2026-01-01'",
        "TIMESTAMP_NTZ'2026-01-01'",
        "TIMESTAMP_NTZ'2026-01-01 00:00:00.000001'",
    ),
    "TIMESTAMP": (
        "TIMESTAMP'1850-01-01 00:00:00Z'",
        "TIMESTAMP'1850-01-01 01:00:00+01:00'",
        "TIMESTAMP'1850-01-01 01:00:00Z'",
    ),
    "DATE": ("DATE'0044-03-15'", "DATE'0044-03-15'", "DATE'0044-03-16'"),
    "BOOLEAN": ("true", "true", "false"),
}
"""Type -> a value, the same one written otherwise, and another one."""
NAMES = tuple(f"k{number}" for number in range(len(KEYS)))
COLUMNS = ", ".join(f"{name} {kind}" for name, kind in zip(NAMES, KEYS, strict=True))
PARTITIONED = f"PARTITIONED BY ({', '.join(name for name in NAMES if name != 'k5')})"
OWN = ", _valid_from TIMESTAMP, _valid_to TIMESTAMP, _row_hash STRING"


def writes(*key: str) -> dict[str, dict[str, Any]]:
    return {
        "merge_key": for_plan(Merge(merge_key=key)),
        "upsert": for_plan(Merge(strategy="upsert", primary_key=key)),
        "scd2": for_plan(Scd2(merge_key=key)),
    }


def make(bench: Bench, columns: str, more: str = "") -> None:
    if "DEFAULT" in columns:
        more += " TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    bench.spark.sql(f"CREATE TABLE delta.`{bench.table}` ({columns}) USING delta {more}")


def commit(
    bench: Bench, seq: int, rows: str, write: dict[str, Any], deleted: str | None = None, **of_batch: Any
) -> None:
    """Commit the rows of a SELECT as a batch."""
    evolution = of_batch.pop("schema_evolution", "fail")
    target = Target(bench.spark, replace(bench.plan.with_spec(schema_evolution=evolution), write=write))
    gone = bench.spark.sql(deleted) if deleted else None
    commit_once(
        target.plan,
        target.log,
        bench.batch(seq, **of_batch),
        lambda transaction: target.write(transaction, bench.spark.sql(rows), deleted=gone),
    )


def stored(bench: Bench, *columns: str, where: str = "true") -> list[Any]:
    table = bench.spark.read.format("delta").load(str(bench.table))
    return sorted((tuple(row) for row in table.where(where).selectExpr(*columns).collect()), key=repr)


def selected(form: int, text: str, other: str | None = None) -> str:
    """Return a SELECT of the first or the second form of all values, or with another value in one column."""
    values = {name: forms[form] for name, forms in zip(NAMES, KEYS.values(), strict=True)}
    if other:
        values[other] = KEYS[[*KEYS][NAMES.index(other)]][2]
    return "SELECT " + ", ".join(f"{value} AS {name}" for name, value in values.items()) + f", '{text}' AS v"


def differing(bench: Bench, where: str = "true") -> list[tuple[str, list[str]]]:
    """Return of each row the text, and the keys whose value is not the usual one."""
    same = [f"{name} <=> {forms[0]}" for name, forms in zip(NAMES, KEYS.values(), strict=True)]
    same[0] = "k0 = 'DE   '"
    rows = stored(bench, "v", *same, where=where)
    return sorted(
        (v, [name for name, is_same in zip(NAMES, flags, strict=True) if not is_same]) for v, *flags in rows
    )


OTHERS = [("other", [name]) for name in sorted(NAMES)]


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.parametrize(
    ("write", "partition"),
    [
        ("scd2", ""),
        ("upsert", PARTITIONED),
        *(pytest.param(write, "", marks=pytest.mark.loads) for write in ("merge_key", "upsert")),
    ],
)
def test_a_row_is_found_by_keys_of_all_types_and_no_other_row_is(
    bench: Bench, write: str, partition: str
) -> None:
    make(bench, f"{COLUMNS}, v STRING{OWN if write == 'scd2' else ''}", partition)
    how = writes(*NAMES)[write]
    commit(bench, 0, selected(0, "old"), how)

    rows = [selected(1, "new"), *(selected(1, "other", name) for name in NAMES)]
    commit(bench, 1, " UNION ALL ".join(rows), how)

    found = differing(bench, "_valid_to IS NULL" if write == "scd2" else "true")
    assert found == sorted([("new", []), *OTHERS])


@pytest.mark.compiled
@pytest.mark.parametrize("partition", [pytest.param("", marks=pytest.mark.loads), PARTITIONED])
def test_a_range_of_all_types_is_replaced_and_no_other_row_is(bench: Bench, partition: str) -> None:
    make(bench, f"{COLUMNS}, v STRING", partition)
    rows = [selected(0, "old"), *(selected(0, "other", name) for name in NAMES[1:])]
    commit(bench, 0, " UNION ALL ".join(rows), {})
    values = [f"{name} = {forms[1]}" for name, forms in zip(NAMES, KEYS.values(), strict=True)]
    where = " AND ".join(values[1:])  # not of the CHAR, which is refused

    commit(bench, 1, selected(1, "new"), {}, mode="overwrite", where=where)

    assert differing(bench) == [("new", []), *(row for row in OTHERS if row[1] != ["k0"])]


def test_a_key_of_another_type_is_refused_before_anything_is_written(bench: Bench) -> None:
    make(bench, "a STRING, b STRUCT<x: INT>, c ARRAY<INT>, d VARIANT")
    values = {"a": "'a'", "b": "named_struct('x', 1)", "c": "array(1)", "d": "parse_json('1')"}

    for key in "abcd":
        collation = " COLLATE UTF8_LCASE" * (key == "a")
        rows = ", ".join(f"{value}{collation * (name == 'a')} AS {name}" for name, value in values.items())
        words = "a is string collate UTF8_LCASE in the SELECT" if key == "a" else f"{key}.*cannot be keys"
        with pytest.raises(InputError, match=words):
            commit(bench, 0, f"SELECT {rows}", writes(key)["upsert"])

    assert DeltaTable.forPath(bench.spark, str(bench.table)).history().count() == 1


@pytest.mark.parametrize("evolution", [pytest.param("fail", marks=pytest.mark.loads), "widen"])
def test_texts_of_one_batch_that_are_one_in_a_char_column_are_one_key(bench: Bench, evolution: str) -> None:
    make(bench, "k CHAR(5), v STRING")
    twice = "SELECT * FROM VALUES ('DE', 'a'), ('DE  ', 'b') AS t(k, v)"
    how = {"schema_evolution": evolution}

    with pytest.raises(MergeKeyError, match="same primary key: k 'DE   '"):
        commit(bench, 0, twice, writes("k")["upsert"], **how)
    commit(bench, 0, twice, for_plan(Merge(primary_key=("k",), dedup_sort=("v", "desc"))), **how)

    assert stored(bench, "k", "v") == [("DE   ", "b")]


@pytest.mark.parametrize("write", [pytest.param("upsert", marks=pytest.mark.loads), "scd2"])
def test_a_key_in_a_char_column_that_a_feed_deletes_is_deleted(bench: Bench, write: str) -> None:
    make(bench, "k CHAR(5), v STRING" + OWN * (write == "scd2"))
    how = writes("k")[write]
    commit(bench, 0, "SELECT * FROM VALUES ('DE', 'a'), ('FR', 'a') AS t(k, v)", how)

    commit(bench, 1, "SELECT 'AT' AS k, 'b' AS v", how, deleted="SELECT 'DE' AS k")

    active = "_valid_to IS NULL" if write == "scd2" else "true"
    assert stored(bench, "k", where=active) == [("AT   ",), ("FR   ",)]


@pytest.mark.slow
@pytest.mark.parametrize("partition", [pytest.param("", marks=pytest.mark.loads), "PARTITIONED BY (k)"])
def test_a_char_column_that_another_writer_filled_without_blanks(bench: Bench, partition: str) -> None:
    make(bench, "k CHAR(5), v STRING", partition)
    write_deltalake(str(bench.table), pa.table({"k": ["DE", "FR", "AT"], "v": ["old"] * 3}), mode="append")

    commit(bench, 0, "SELECT 'DE' AS k, 'new' AS v", writes("k")["upsert"])
    commit(bench, 1, "SELECT 'FR' AS k, 'new' AS v", writes("k")["merge_key"])
    with pytest.raises(InputError, match=r"v = 'b' OR k = 'AT', depends on k, which is CHAR in the table"):
        commit(bench, 2, "SELECT 'AT' AS k, 'new' AS v", {}, mode="overwrite", where="v = 'b' OR k = 'AT'")

    assert stored(bench, "k", "v") == [("AT   ", "old"), ("DE   ", "new"), ("FR   ", "new")]


@pytest.mark.slow
@pytest.mark.parametrize("write", ["merge_key", "upsert", "scd2"])
def test_bytes_of_a_text_that_are_not_utf_8_are_compared_as_they_are(bench: Bench, write: str) -> None:
    """JSON, Python and the statistics of files have one replacement for all of them."""
    make(bench, "k STRING, v STRING", "")
    for seq, (key, value) in enumerate((("FF", "FD"), ("FE", "FD"), ("FF", "FC"))):
        rows = f"SELECT CAST(X'{key}' AS STRING) AS k, CAST(X'{value}' AS STRING) AS v"
        commit(bench, seq, rows, writes("k")[write], schema_evolution="add")

    active = "_valid_to IS NULL" if write == "scd2" else "true"
    assert stored(bench, "hex(k)", "hex(v)", where=active) == [("FE", "FD"), ("FF", "FC")]


@pytest.mark.slow
def test_a_text_that_is_too_long_is_refused(bench: Bench) -> None:
    make(bench, "k CHAR(2), v VARCHAR(2)")
    commit(bench, 0, "SELECT 'de' AS k, 'ol' AS v", {})

    for write in ({}, writes("k")["upsert"]):
        for values in ("'deu' AS k, 'ne' AS v", "'de' AS k, 'new' AS v"):
            with pytest.raises(Py4JJavaError, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
                commit(bench, 1, f"SELECT {values}", write)

    assert stored(bench, "k", "v") == [("de", "ol")]


@pytest.mark.slow
def test_the_same_row_may_come_again_where_char_is_inside_of_a_column(bench: Bench) -> None:
    make(bench, "k INT, at INT, s STRUCT<c: CHAR(3), n: INT>, a ARRAY<CHAR(3)>, m MAP<STRING, CHAR(3)>", "")
    values = "named_struct('c', 'x', 'n', 2) AS s, array('x', NULL) AS a, map('k', 'x') AS m"
    write = for_plan(Merge(strategy="upsert", primary_key=("k",), sequence_by="at"))
    for seq in range(2):
        commit(bench, seq, f"SELECT 1 AS k, 1 AS at, {values} UNION ALL SELECT 2, 1, NULL, NULL, NULL", write)

    assert stored(bench, "k", "s.c", "s.n", "a", "m['k']") == [
        (1, "x  ", 2, ["x  ", None], "x  "),
        (2, None, None, None, None),
    ]
