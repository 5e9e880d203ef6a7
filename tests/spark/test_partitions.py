"""What a partition column holds is what was selected, and a predicate finds it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_scope.exceptions import InputError

pytestmark = pytest.mark.spark

TEXTS = [
    *["a/b", "%2F", "100%", "ü日", "x y", " x", " ", "a=b", "a:b", "?", "\\", "'", "{x}", "\n", "null", "01"],
    "__HIVE_DEFAULT_PARTITION__x",
]


def seen_by_spark(bench: Any, *columns: str) -> list[tuple[Any, ...]]:
    found = bench.spark.read.format("delta").load(str(bench.table)).selectExpr(*columns).collect()
    return sorted((tuple(row) for row in found), key=repr)


@pytest.mark.slow
def test_texts_in_a_partition_column_are_kept_and_found_by_the_range_that_is_replaced(bench: Any) -> None:
    file = bench.parquet("a.parquet", a=[*range(len(TEXTS))], p=TEXTS)
    bench.run(bench.batch(0, file), partition_by=("p",))
    kept = [{"a": number, "p": text} for number, text in enumerate(TEXTS)]
    assert bench.rows() == sorted(kept, key=repr)
    assert seen_by_spark(bench, "a", "p") == sorted([(row["a"], row["p"]) for row in kept], key=repr)

    for seq, text in enumerate(["a/b", "100%"], start=1):
        again = bench.parquet(f"{seq}.parquet", a=[100 + seq], p=[text])
        bench.run(bench.batch(seq, again, mode="overwrite", where=f"p = '{text}'"), partition_by=("p",))

    kept = [row for row in kept if row["p"] not in ("a/b", "100%")]
    kept += [{"a": 101, "p": "a/b"}, {"a": 102, "p": "100%"}]
    assert bench.rows() == sorted(kept, key=repr)


def test_values_of_other_types_in_partition_columns_are_kept(bench: Any) -> None:
    kinds = {
        "early": "DATE'1200-01-01'",
        "moment": "TIMESTAMP'1850-01-01 00:00:00.000001'",
        "wall": "TIMESTAMP_NTZ'2026-03-29 02:30:00.5'",
        "exact": "CAST('12345678901234567890.123456789012345678' AS decimal(38,18))",
        "tiny": "1e-300D",
        "nan": "double('NaN')",
        "single": "float(0.1)",
        "least": "CAST(-9223372036854775808 AS bigint)",
        "no": "false",
        "raw": "binary('a/b')",
        "unknown": "CAST(NULL AS string)",
    }
    columns = ", ".join(f"{value} AS {name}, {value} AS {name}_2" for name, value in kinds.items())

    bench.run(
        bench.batch(0, bench.parquet("a.parquet", a=[1])),
        sql=f"SELECT a, {columns} FROM @data",
        partition_by=tuple(kinds),
    )

    same = [f"{name} <=> {name}_2 AND {name} <=> {value}" for name, value in kinds.items()]
    assert seen_by_spark(bench, *same) == [(True,) * len(kinds)]


def test_hives_word_for_null_in_a_partition_column_is_an_error_because_delta_would_make_it_null(
    bench: Any,
) -> None:
    file = bench.parquet("a.parquet", a=[1], p=["__HIVE_DEFAULT_PARTITION__"])

    error = bench.failure(bench.batch(0, file), partition_by=("p",))

    assert "partition column p has an empty text or __HIVE_DEFAULT_PARTITION__" in error.what


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_bytes_that_are_no_text_in_a_partition_column_are_refused_because_delta_would_change_them(
    bench: Any, kind: str
) -> None:
    file = bench.parquet("a.parquet", a=[1, 2], p=[b"\xc3\xa9", b"\xff"])
    sql = f"SELECT a, CAST(p AS {kind}) AS p FROM @data"

    error = bench.failure(bench.batch(0, file), partition_by=("p",), sql=sql)

    assert "partition column p has bytes that are no UTF-8, which Delta turns into others" in error.what


def test_a_time_before_the_year_1_is_refused_because_delta_would_make_it_another_one(bench: Any) -> None:
    sql = "SELECT timestamp_micros(at) AS p, at AS micros FROM @data"
    how = {"sql": sql, "partition_by": ("p",)}
    first = -62_135_596_800_000_000  # 0001-01-01
    bench.run(bench.batch(0, bench.parquet("a.parquet", at=[first, 0, None])), **how)

    error = bench.failure(bench.batch(1, bench.parquet("b.parquet", at=[first - 1])), **how)

    assert "partition column p has a time before the year 1, which Delta turns into another" in error.what
    assert seen_by_spark(bench, "unix_micros(p) <=> micros") == [(True,)] * 3


def test_days_and_wall_clock_times_before_the_year_1_stay_what_they_are(bench: Any) -> None:
    sql = """SELECT date_from_unix_date(day) AS d, timestamp_ntz '-0043-03-15 12:30:00.000001' AS n, day
        FROM @data"""
    bench.run(bench.batch(0, bench.parquet("a.parquet", day=[-735_525])), sql=sql, partition_by=("d", "n"))

    assert seen_by_spark(
        bench, "unix_date(d) <=> day", "n <=> timestamp_ntz '-0043-03-15 12:30:00.000001'"
    ) == [(True, True)]


@pytest.mark.slow
def test_a_null_in_a_column_of_the_range_is_outside_of_it(bench: Any) -> None:
    bench.make(a=[1], d=["mon"])
    unknown = bench.parquet("b.parquet", a=[2], d=pa.array([None], pa.string()))

    for mode in ("append", "overwrite"):
        bench.failure(bench.batch(1, unknown, mode=mode, where="d = 'tue'"))

    assert bench.rows() == [{"a": 1, "d": "mon"}]


def test_the_rows_without_a_value_can_be_the_range(bench: Any) -> None:
    bench.make(["d"], a=[1, 2], d=["mon", None])
    unknown = bench.parquet("b.parquet", a=[3], d=pa.array([None], pa.string()))

    bench.run(bench.batch(1, unknown, mode="overwrite", where="d IS NULL"), partition_by=("d",))

    assert bench.rows() == [{"a": 1, "d": "mon"}, {"a": 3, "d": None}]


def test_a_struct_that_is_null_and_one_of_nulls_stay_what_they_are(bench: Any) -> None:
    """Delta's MERGE and its evolution of columns took the one for the other."""
    kind = pa.struct({"x": pa.int64(), "y": pa.string()})
    values = [None, {"x": None, "y": None}, {"x": 1, "y": None}]

    for seq in range(2):
        file = bench.parquet(f"{seq}.parquet", a=[3 * seq + n for n in range(3)], s=pa.array(values, kind))
        bench.run(bench.batch(seq, file))

    assert bench.rows() == [{"a": number, "s": values[number % 3]} for number in range(6)]


def test_a_partition_column_may_be_declared_in_another_letter_case_than_the_files_have(bench: Any) -> None:
    """The first batch was taken, all others were refused; and an empty text became NULL."""
    how = {"partition_by": ("day",)}
    bench.run(bench.batch(0, bench.parquet("a.parquet", a=[1], Day=["mon"])), **how)
    bench.run(bench.batch(1, bench.parquet("b.parquet", a=[2], Day=["tue"])), **how)

    assert bench.rows() == [{"a": 1, "Day": "mon"}, {"a": 2, "Day": "tue"}]


def test_an_empty_text_is_refused_however_the_partition_column_is_declared(bench: Any) -> None:
    error = bench.failure(bench.batch(0, bench.parquet("a.parquet", a=[1], Day=[""])), partition_by=("day",))

    assert "which Delta turns into NULL" in error.what


@pytest.mark.parametrize("evolution", ["fail", "add"])
def test_a_partitioning_by_all_columns_or_others_is_refused_before_anything_is_written(
    bench: Any, evolution: str
) -> None:
    file = bench.parquet("a.parquet", a=[1], P=["x"])
    wrong = {("p", "A"): "names all columns of the table, a, P", ("b",): "names 'b', which is not a column"}
    for partitions, message in wrong.items():
        with pytest.raises(InputError, match=message):
            bench.run(bench.batch(0, file), partition_by=partitions, schema_evolution=evolution)
        assert not bench.table.exists()
    bench.run(bench.batch(0, file), partition_by=("P",), schema_evolution=evolution)

    for partitions, message in wrong.items():
        whole = bench.batch(1, file, mode="overwrite", refresh_start=1, overwrite_start=1)
        with pytest.raises(InputError, match=message):
            bench.run(whole, partition_by=partitions, schema_evolution=evolution)
    assert (bench.version(), bench.rows()) == (0, [{"a": 1, "P": "x"}])
