"""What a batch reads: its columns, the virtual ones, the SELECT over them, and the first bad record."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import BadRecordError, SourceMismatchError
from airflow_provider_scope.spark.files import listing
from airflow_provider_scope.spark.files.reading import first_failing, read
from tests.spark.conftest import changed

pytestmark = [pytest.mark.spark, pytest.mark.compiled]


def test_virtual_columns_come_from_the_log_each_once_and_an_unknown_time_is_null(bench):
    file = bench.parquet("a.parquet", a=[1])._replace(created_ms=None)

    (row,) = bench.read(
        bench.batch(0, file),
        sql="SELECT *, source_file_uri, source_file_length l, source_file_created FROM @data",
    )

    virtual = {
        "source_file_uri": file.path,
        "source_file_length": file.size_bytes,
        "source_file_created": None,
    }
    assert row == {"a": 1, "l": file.size_bytes, **virtual}
    (row,) = bench.read(bench.batch(0, file), sql="SELECT source_file_modified m FROM @data")
    assert row == {"m": dt.datetime.fromtimestamp(file.modified_ms / 1000, dt.UTC)}


def test_files_may_have_no_rows_or_further_columns(bench):
    files = [
        bench.parquet("0", a=pa.array([], pa.int64())),
        bench.parquet("1", a=[1]),
        bench.parquet("2", a=[2], b=["x"]),
    ]

    assert sorted(map(repr, bench.read(bench.batch(0, *files)))) == [
        "{'a': 1, 'b': None}",
        "{'a': 2, 'b': 'x'}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("select", "expect", "words"),
    [
        ("CAST(trim(b) AS int) AS b", None, "The value 'x'"),
        ("a + 1 AS n", {"more": "n > 1"}, "breaks the rule 'more'"),
    ],
)
def test_a_failing_select_or_rule_names_the_file_and_the_record(bench, select, expect, words):
    good = [bench.text(f"{n}.csv", "".join(f"{i},{i}\n" for i in range(1, 9))) for n in (0, 2, 3)]
    bad = bench.text("1.csv", "1,1\n2,2\n0,x\n3,3\n0, x\n")
    columns = {"a": "int", "b": "string"}

    error = bench.failure(
        bench.batch(0, good[0], bad, *good[1:]),
        reads=True,
        format="csv",
        columns=columns,
        expect=expect,
        sql=f"SELECT {select} FROM @data",
    )

    assert bad.path in error.what
    assert ("record 3 of" if not expect else "(number 3 of the file)") in error.what
    assert words.lower() in error.what.lower()


def test_rows_that_fail_only_together_name_no_record(bench):
    file = bench.parquet("a.parquet", a=[2**62, 2**62, 1])

    error = bench.failure(bench.batch(0, file), reads=True, sql="SELECT sum(a) AS s FROM @data")

    assert "The SQL fails on the rows of the batch" in error.what


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {3, 5}, {6, 0}])
def test_the_first_that_fails_is_found_by_halves(bad):
    tries = []

    def failure(start, end):
        tries.append((start, end))
        failing = sorted(bad & {*range(start, end)})
        return ValueError(failing[0]) if failing else None

    found = first_failing(7, failure)

    assert (found and found[0]) == min(bad, default=None)
    assert len(tries) <= 4
    assert first_failing(0, failure) is None


def test_a_row_that_breaks_a_rule_is_an_error_that_names_rule_and_row(bench):
    file = bench.parquet("a.parquet", a=[1, None], b=["x", "y"])

    error = bench.failure(
        bench.batch(0, file),
        reads=True,
        expect={"has a": "a > 0"},
        sql="SELECT *, source_file_uri FROM @data",
    )

    assert isinstance(error, BadRecordError)
    assert "it breaks the rule 'has a' (a > 0)" in error.what
    assert file.path in error.what
    assert '"b":"y"' in error.what


def test_a_scan_of_other_files_than_the_batch_has_is_an_error(bench):
    """What Spark 4.2 does with ``__globPaths__=false``: it adds the whole list again (SPARK-58518)."""
    paths = [bench.text(f"{name}.csv", "1\n").path for name in ("a", "w_[x]")]
    data = bench.spark.read.option("__globPaths__", "false").csv(paths)

    with pytest.raises(SourceMismatchError, match=r"a\.csv 2 times instead of 1"):
        listing.check_listed(data, paths)


@pytest.mark.slow
def test_many_small_files_become_a_few_of_the_table_unless_the_user_says_what_opening_costs(bench):
    files = [bench.parquet(f"{number}.parquet", a=[number]) for number in range(100)]

    bench.run(bench.batch(0, *files))
    by_cores = len(DeltaTable(str(bench.table)).file_uris())
    bench.spark.conf.set("spark.sql.files.openCostInBytes", "16m")
    try:
        bench.run(bench.batch(1, *files))
    finally:
        bench.spark.conf.unset("spark.sql.files.openCostInBytes")

    assert by_cores <= 3  # two cores, and what is left over
    assert len(DeltaTable(str(bench.table)).file_uris()) - by_cores > 10
    assert bench.rows() == sorted([{"a": number} for number in range(100)] * 2, key=repr)


def test_parameters_are_values_and_never_text(bench):
    file = bench.parquet("a.parquet", a=["x", "1' OR '1'='1"])

    rows = bench.read(
        bench.batch(0, file),
        sql="SELECT a FROM @data WHERE a = :wanted",
        sql_params={"wanted": "1' OR '1'='1"},
    )

    assert rows == [{"a": "1' OR '1'='1"}]


def test_options_are_known_in_any_case_and_ours_are_not_taken_from_the_user(bench):
    good = bench.text("a.csv", '1,"x \\"y\\""\n')
    bad = bench.text("b.csv", "1\n")
    options = {"Escape": "\\", "MODE": "FAILFAST", "EnforceSchema": "false"}
    csv = {"format": "csv", "columns": {"a": "int", "b": "string"}, "options": options}

    rows = bench.read(bench.batch(0, good), **csv)
    error = bench.failure(bench.batch(1, bad), reads=True, **csv)

    assert rows == [{"a": 1, "b": 'x "y"'}]
    assert "it has not the 2 fields of the columns a, b" in error.what


def test_a_text_is_converted_once_for_its_check_and_its_value(bench):
    entry = bench.batch(0, bench.text("a.csv", "1.50,2026-01-01\n"))
    plan = changed(bench.plan, format="csv", columns={"v": "decimal(10,2)", "day": "date"}, options={})
    done = read(bench.spark, plan, entry)._jdf.queryExecution().optimizedPlan().toString()
    assert done.count("as decimal(10,2)") == 1
    assert done.count("as date)") == 1


OWN_NAMES = [
    *("created", "modified", "value", "file", "text", "line", "number", "place", "name", "keys"),
    *("bad", "wrong", "record", "path", "p0", "x", "k", "v", "e"),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_columns_may_have_the_names_that_are_used_inside(bench, kind):
    columns = {name: "struct<a: int>" if name == "bad" and kind == "json" else "string" for name in OWN_NAMES}
    row = {name: f"{name}!" for name in OWN_NAMES}
    text = ",".join(OWN_NAMES) + "\n" + ",".join(row.values()) + "\n"
    if kind == "json":
        row["bad"] = {"a": 1}
        text = json.dumps(row)
    plan = {"format": kind, "columns": columns, "partition_columns": {"d": "int"}}
    plan |= {"options": {"header": "true", "footer": "T"}} if kind == "csv" else {}
    sql = "SELECT *, source_file_uri, source_file_modified FROM @data"

    read = bench.read(bench.batch(0, bench.text(f"d=1/a.{kind}", text)), **plan, sql=sql)
    good, _ = bench.sort(bench.batch(0, bench.text(f"d=1/b.{kind}", text)), **plan, sql=sql)

    assert [{name: row[name] for name in OWN_NAMES} for row in (*read, *good)] == [row, row]
    if kind == "json":
        odd = json.dumps(row | {"bad": {"a": 1, "zz": 2}})
        error = bench.failure(bench.batch(0, bench.text(f"d=1/c.{kind}", odd)), reads=True, **plan)
        assert "keys that are not declared: zz" in error.what


def test_xml_is_loaded_as_text_that_the_select_takes_apart(bench):
    """As the page says; an order that from_xml cannot read fails the batch, and its text is there."""
    sql = """SELECT item.*, value AS xml FROM (
      SELECT value, explode(from_xml(value, 'order array<struct<id: int, name: string>>',
        map('mode', 'FAILFAST')).order) AS item FROM @data)"""
    how = {"format": "text", "options": {"wholetext": "true"}, "sql": sql}
    text = "<orders>\n<order><id>1</id><name>a</name></order><order><id>2</id><zz>9</zz></order></orders>"

    rows = bench.read(bench.batch(0, bench.text("a.xml", text)), **how)
    error = bench.failure(bench.batch(0, bench.text("b.xml", text.replace("2", "x"))), reads=True, **how)

    assert rows == [{"id": 1, "name": "a", "xml": text}, {"id": 2, "name": None, "xml": text}]
    assert "b.xml" in error.what
