"""A table that grows with its files: columns and types come in the commit of the batch that brings them."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import InputError, SchemaMismatchError, SqlError
from airflow_provider_scope.spark.target import Target

pytestmark = pytest.mark.spark

ADD = {"schema_evolution": "add"}
WIDEN = {"schema_evolution": "widen"}
BIG = 3_000_000_000


def stored(bench) -> list[dict[str, Any]]:
    """Read the files of the table with pyarrow, and cast them to the table's schema.

    It is for tables whose types were widened: deltalake knows their log, and does not read their rows.
    """
    table = DeltaTable(str(bench.table))
    schema = pa.schema(table.schema().to_arrow())
    found = []
    for uri in table.file_uris():
        rows = pq.ParquetFile(unquote(uri)).read()
        columns = [
            rows[item.name].cast(item.type)
            if item.name in rows.column_names
            else pa.nulls(rows.num_rows, item.type)
            for item in schema
        ]
        found += pa.Table.from_arrays(columns, schema=schema).to_pylist()
    return sorted(found, key=repr)


def types(bench) -> dict[str, str]:
    """Return the table's columns in their order, with the types as Delta's log has them."""
    fields = json.loads(DeltaTable(str(bench.table)).schema().to_json())["fields"]
    return {item["name"]: json.dumps(item["type"]).strip('"') for item in fields}


def column_changes(bench) -> list[list[str]]:
    """Return the actions of each commit that changed the columns after the first one."""
    commits = sorted((bench.table / "_delta_log").glob("*.json"))
    seen, found = None, []
    for commit in commits:
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            schema = action.get("metaData", {}).get("schemaString", seen)
            if seen is not None and schema != seen:
                found.append(sorted(key for action in actions for key in action))
            seen = schema
    return found


# ---- columns that come --------------------------------------------------------------------------


def test_new_columns_come_to_the_end_in_the_commit_of_their_batch(bench):
    bench.make(z=[1], a=["x"])

    version = bench.run(
        bench.batch(1, bench.parquet("b.parquet", m=[date(2026, 1, 2)], Z=[2], b=[0.5])), **ADD
    )

    assert version == 1
    assert list(types(bench).items()) == [("z", "long"), ("a", "string"), ("m", "date"), ("b", "double")]
    assert bench.rows() == [
        {"z": 1, "a": "x", "m": None, "b": None},
        {"z": 2, "a": None, "m": date(2026, 1, 2), "b": 0.5},
    ]
    assert column_changes(bench) == [["add", "commitInfo", "metaData", "txn"]]


def test_an_old_file_that_comes_late_is_loaded_without_the_new_columns(bench, capfd):
    first = bench.batch(0, bench.parquet("a.parquet", id=[1], größe=[1]))
    second = bench.batch(1, bench.parquet("b.parquet", id=[2], größe=[2], zuletzt=["x"], **{"a.b": [7]}))
    late = bench.batch(2, bench.parquet("late.parquet", id=[3]))

    bench.run_plan(first, second, late, **ADD)

    assert bench.rows() == [
        {"id": 1, "größe": 1, "zuletzt": None, "a.b": None},
        {"id": 2, "größe": 2, "zuletzt": "x", "a.b": 7},
        {"id": 3, "größe": None, "zuletzt": None, "a.b": None},
    ]
    events = [
        json.loads(line.split(" ", 1)[1]) for line in capfd.readouterr().out.splitlines() if "@@" in line
    ]
    assert [(e["seq"], e["message"]) for e in events if e["event"] == "columns"] == [
        (1, "the table gets zuletzt string, a.b bigint"),
        (2, "not in the SELECT: größe, zuletzt, a.b"),
    ]


def test_fields_of_structs_come_and_go_and_a_null_stays_one(bench):
    def nested(seq, name, kind, values):
        path = bench.folder / "landing" / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(
            pa.table({"n": pa.array(range(seq * 10, seq * 10 + len(values))), "s": pa.array(values, kind)}),
            path,
        )
        return bench.batch(seq, bench.entry(path))

    old = pa.struct({"y": pa.int64(), "l": pa.list_(pa.struct({"k": pa.int64()}))})
    new = pa.struct({"L": pa.list_(pa.struct({"j": pa.string(), "K": pa.int64()})), "x.y": pa.int64()})
    bench.run(nested(0, "a.parquet", old, [{"y": 1, "l": [{"k": 1}, None]}, None]), **ADD)

    bench.run(
        nested(
            1, "b.parquet", new, [{"L": [{"j": "J", "K": 2}, None], "x.y": 5}, None, {"L": None, "x.y": None}]
        ),
        **ADD,
    )
    bench.run(nested(2, "late.parquet", old, [{"y": 3, "l": []}, None]), **ADD)

    assert bench.rows() == [
        {"n": 0, "s": {"y": 1, "l": [{"k": 1, "j": None}, None], "x.y": None}},
        {"n": 1, "s": None},
        {"n": 10, "s": {"y": None, "l": [{"k": 2, "j": "J"}, None], "x.y": 5}},
        {"n": 11, "s": None},
        {"n": 12, "s": {"y": None, "l": None, "x.y": None}},
        {"n": 20, "s": {"y": 3, "l": [], "x.y": None}},
        {"n": 21, "s": None},
    ]


@pytest.mark.parametrize("write", [{}, {"kind": "merge", "strategy": "upsert", "primary_key": ["n"]}])
def test_fields_in_another_order_keep_their_values(bench, write):
    """As after ALTER TABLE … ALTER COLUMN s.b FIRST in a source; a CAST would take them by their places."""
    values = "named_struct({0}) AS s, map('k', array(named_struct({0}), NULL), 'none', NULL) AS m"
    files = [bench.parquet(f"{n}.parquet", n=[n]) for n in (1, 2)]
    first = values.format("'a', 1, 'b', 2L")
    bench.run(bench.batch(0, files[0]), sql=f"SELECT n, {first} FROM @data", write=write)

    reordered = values.format("'b', 4L, 'a', 3")
    bench.run(bench.batch(1, files[1]), sql=f"SELECT n, {reordered} FROM @data", write=write)

    assert bench.rows() == [
        {"n": n, "s": fields, "m": [("k", [fields, None]), ("none", None)]}
        for n, fields in ((1, {"a": 1, "b": 2}), (2, {"a": 3, "b": 4}))
    ]


def test_fields_in_the_values_of_a_map(bench):
    bench.run(
        bench.batch(0, bench.parquet("a.parquet", n=[1])),
        sql="SELECT n, map('k', named_struct('y', 1)) m FROM @data",
        **ADD,
    )

    bench.run(
        bench.batch(1, bench.parquet("b.parquet", n=[2])),
        sql="SELECT n, map('k', named_struct('x', 'X', 'Y', 2), 'none', NULL) m FROM @data",
        **ADD,
    )

    assert bench.rows() == [
        {"n": 1, "m": [("k", {"y": 1, "x": None})]},
        {"n": 2, "m": [("k", {"y": 2, "x": "X"}), ("none", None)]},
    ]


def test_a_column_without_a_type_gets_one_when_a_value_comes(bench):
    bench.run(
        bench.batch(0, bench.parquet("a.parquet", n=[1])), sql="SELECT n, NULL AS later FROM @data", **ADD
    )
    bench.run(
        bench.batch(1, bench.parquet("b.parquet", n=[2])), sql="SELECT n, 'x' AS later FROM @data", **ADD
    )
    bench.run(
        bench.batch(2, bench.parquet("c.parquet", n=[3])), sql="SELECT n, NULL AS later FROM @data", **ADD
    )

    assert bench.rows() == [{"n": 1, "later": None}, {"n": 2, "later": "x"}, {"n": 3, "later": None}]


def test_a_new_column_with_a_type_inside_that_delta_wants_to_be_asked_for(bench):
    bench.make(n=[1])
    sql = "SELECT n, array(timestamp_ntz'2026-01-02 03:04:05') AS t FROM @data"

    bench.run(bench.batch(1, bench.parquet("b.parquet", n=[2])), sql=sql, **ADD)

    at = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a time without a zone is what is tested
    assert bench.rows() == [{"n": 1, "t": None}, {"n": 2, "t": [at]}]


def test_what_does_not_fit_leaves_the_table_as_it_was(bench):
    bench.make(n=[1])
    batch = bench.batch(1, bench.parquet("b.parquet", n=[2]))

    for columns, problem in {
        "n, named_struct('a', 1, 'A', 2) AS s": "s.A is selected twice",
        "n, array(NULL) AS l": "l.element has no type",
        "CAST(n AS double) AS n, 1 AS b": "n is double in the SELECT and bigint in the table",
    }.items():
        with pytest.raises(SchemaMismatchError, match=problem):
            bench.run(batch, sql=f"SELECT {columns} FROM @data", **WIDEN)

    assert bench.version() == 0
    assert bench.rows() == [{"n": 1}]


# ---- types that widen ---------------------------------------------------------------------------

VALUES = {
    "tinyint": (7, 7),
    "smallint": (300, 300),
    "int": (70_000, 70_000),
    "bigint": (BIG, BIG),
    "float": (1.5, 1.5),
    "double": (0.1, 0.1),
    "date": ("date'2026-01-02'", date(2026, 1, 2)),
    "timestamp_ntz": ("timestamp_ntz'2026-01-02 03:04:05'", datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
    "decimal(5,2)": ("123.45", Decimal("123.45")),
    "decimal(5,3)": ("12.345", Decimal("12.345")),
    "decimal(12,2)": ("1234567890.12", Decimal("1234567890.12")),
    "decimal(20,0)": ("12345678901234567890", Decimal(12345678901234567890)),
}
STORED_AS = {"smallint": "short", "int": "integer", "bigint": "long"}


def held(value: Any, kind: str) -> Any:
    """Return a value as a column of a type holds it."""
    if kind.startswith("decimal"):
        return Decimal(value)
    if kind == "double":
        return float(value)
    if kind == "timestamp_ntz" and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001
    return value


WIDENED = [
    ("tinyint", "smallint", "smallint"),
    ("smallint", "int", "int"),
    ("int", "bigint", "bigint"),
    ("int", "double", "double"),
    ("int", "float", "double"),
    ("float", "int", "double"),
    ("date", "timestamp_ntz", "timestamp_ntz"),
    ("decimal(5,2)", "decimal(5,3)", "decimal(6,3)"),
    ("decimal(5,2)", "bigint", "decimal(21,2)"),
    ("int", "decimal(12,2)", "decimal(12,2)"),
    ("bigint", "decimal(5,3)", "decimal(23,3)"),
    ("bigint", "decimal(20,0)", "decimal(20,0)"),
]
"""The table's type, the SELECT's, and the one that holds both."""


def test_columns_and_nested_fields_are_widened_and_keep_every_value(bench):
    def sql(kinds, n):
        columns = [f"{n} AS n"]
        for number, kind in enumerate(kinds):
            value = f"CAST({VALUES[kind][0]} AS {kind})"
            columns.append(f"{value} AS v{number}, array(named_struct('V', {value})) AS l{number}")
        return f"SELECT {', '.join(columns)} FROM @data"

    tables, selects, afters = zip(*WIDENED, strict=True)
    for seq, (kinds, changes) in enumerate([(tables, ADD), (selects, WIDEN), (tables, ADD)]):
        bench.run(bench.batch(seq, bench.parquet(f"{seq}.parquet", z=[0])), sql=sql(kinds, seq), **changes)

    found = types(bench)
    assert [found[f"v{n}"] for n in range(len(WIDENED))] == [STORED_AS.get(kind, kind) for kind in afters]
    expected = [{"n": seq} for seq in range(3)]
    for number, (table, select, after) in enumerate(WIDENED):
        old, new = (held(VALUES[kind][1], after) for kind in (table, select))
        for row, value in zip(expected, (old, new, old), strict=True):
            row |= {f"v{number}": value, f"l{number}": [{"V": value}]}
    assert sorted(stored(bench), key=lambda row: row["n"]) == expected
    by_spark = bench.spark.read.format("delta").load(str(bench.table)).orderBy("n").collect()
    assert [[row[f"v{n}"] for n in range(len(WIDENED))] for row in by_spark] == [
        [row[f"v{n}"] for n in range(len(WIDENED))] for row in expected
    ]
    assert column_changes(bench) == [["add", "commitInfo", "metaData", "txn"]]


def test_a_session_that_forbids_widening_is_told_otherwise(bench):
    key = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
    bench.make(n=pa.array([1], pa.int32()))
    bench.spark.conf.set(key, "never")
    try:
        bench.run(bench.batch(1, bench.parquet("b.parquet", n=[0.5])), **WIDEN)
    finally:
        bench.spark.conf.unset(key)

    assert stored(bench) == [{"n": 0.5}, {"n": 1.0}]


# ---- exactly once -------------------------------------------------------------------------------


def test_a_batch_that_is_there_changes_no_column(bench):
    bench.make(n=[1])
    batch = bench.batch(1, bench.parquet("b.parquet", n=[2], b=[1]))
    bench.run(batch, **ADD)

    assert bench.run(batch, sql="SELECT *, 1 AS c FROM @data", **ADD) is None
    assert bench.version() == 1
    assert list(types(bench)) == ["n", "b"]


def test_a_batch_that_fails_while_it_writes_leaves_the_columns_as_they_were(bench):
    bench.run(
        bench.batch(0, bench.parquet("a.parquet", n=[1])),
        sql="SELECT CAST(n AS int) AS n FROM @data",
        **WIDEN,
    )
    batch = bench.batch(1, bench.parquet("b.parquet", n=[BIG]))

    bench.failure(batch, sql="SELECT n, CAST(raise_error('x') AS int) AS b FROM @data", **WIDEN)

    assert types(bench) == {"n": "integer"}
    assert DeltaTable(str(bench.table)).metadata().configuration == {"delta.enableTypeWidening": "true"}
    assert stored(bench) == [{"n": 1}]
    bench.run(batch, sql="SELECT n, 1 AS b FROM @data", **WIDEN)
    assert stored(bench) == [{"n": 1, "b": None}, {"n": BIG, "b": 1}]


SECOND = "22222222-2222-2222-2222-222222222222"


def changed_meanwhile(monkeypatch, change):
    """Let somebody change the table once, between the look at it and the write."""
    real = Target._alter
    done = []

    def late(target, properties):
        real(target, properties)
        if not done:
            done.append(True)
            change()

    monkeypatch.setattr(Target, "_alter", late)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        pytest.param({"c": ["x"]}, {"n": 2, "b": 1, "c": None}, id="another column"),
        pytest.param({"b": [0.5]}, None, id="the same column with another type"),
        pytest.param(
            {"B": [5]}, {"n": 2, "B": 1}, id="the same column in another case", marks=pytest.mark.loads
        ),
    ],
)
def test_a_column_that_somebody_else_adds_at_the_same_time(bench, monkeypatch, theirs, expected):
    bench.make(n=[1])
    other = bench.batch(0, bench.parquet("other.parquet", n=[9], **theirs))
    batch = bench.batch(1, bench.parquet("b.parquet", n=[2], b=[1]))
    # The other pipeline prepares and writes through a target of its own, after ours has looked.
    bench_run = bench.run
    bench_run(bench.batch(0, bench.parquet("c.parquet", n=[8])), pipeline=SECOND, **ADD)
    monkeypatch.setattr(Target, "_prepare", lambda *_: None)
    changed_meanwhile(monkeypatch, lambda: bench_run(bench.batch(1, *other.files), pipeline=SECOND, **ADD))

    if expected is None:
        with pytest.raises(SchemaMismatchError, match="b is bigint in the SELECT and double in the table"):
            bench.run(batch, **ADD)
        assert len(bench.rows()) == 3
    else:
        bench.run(batch, **ADD)
        assert len(bench.rows()) == 4
        assert expected in bench.rows()


@pytest.mark.loads
def test_a_type_that_somebody_else_widens_at_the_same_time(bench, monkeypatch):
    small = "SELECT CAST(n AS int) AS n FROM @data"
    bench.make(n=pa.array([1], pa.int32()))
    other = bench.batch(0, bench.parquet("other.parquet", n=[BIG]))
    changed_meanwhile(monkeypatch, lambda: bench.run(other, pipeline=SECOND, **WIDEN))
    monkeypatch.setattr(Target, "_prepare", lambda *_: None)

    bench.run(bench.batch(1, bench.parquet("b.parquet", n=[2])), sql=small, **WIDEN)

    assert stored(bench) == [{"n": 1}, {"n": 2}, {"n": BIG}]


# ---- replacing ----------------------------------------------------------------------------------


def overwrite(bench, seq, *files, **changes):
    return bench.batch(seq, *files, mode="overwrite", overwrite_start=seq, refresh_start=seq, **changes)


@pytest.mark.slow
def test_a_refresh_keeps_the_columns_that_later_batches_bring_again(bench):
    old, new = bench.parquet("a.parquet", n=[1]), bench.parquet("b.parquet", n=[2], b=["x"])
    bench.run_plan(bench.batch(0, old), bench.batch(1, new), **ADD)

    bench.run(overwrite(bench, 2, old), **ADD)
    assert bench.rows() == [{"n": 1, "b": None}]
    bench.run(bench.batch(3, new), **ADD)

    assert bench.rows() == [{"n": 1, "b": None}, {"n": 2, "b": "x"}]


def test_a_refresh_adds_columns_and_widens_types(bench):
    bench.make(n=pa.array([1], pa.int32()))

    bench.run(overwrite(bench, 1, bench.parquet("b.parquet", b=["x"], n=[BIG])), **WIDEN)

    assert list(types(bench).items()) == [("n", "long"), ("b", "string")]
    assert stored(bench) == [{"n": BIG, "b": "x"}]


def test_a_refresh_whose_columns_cannot_be_had_by_adding_makes_them_anew(bench):
    bench.make(n=[1], gone=[1])
    at = "timestamp_ntz'2026-01-02 03:04:05'"

    bench.run(
        overwrite(bench, 1, bench.parquet("b.parquet", b=[1])), sql=f"SELECT {at} AS n, b FROM @data", **WIDEN
    )
    bench.run(bench.batch(2, bench.parquet("c.parquet", b=[2])), sql="SELECT b, 'x' AS c FROM @data", **WIDEN)

    assert list(types(bench).items()) == [("n", "timestamp_ntz"), ("b", "long"), ("c", "string")]
    assert bench.rows() == [
        {"n": None, "b": 2, "c": "x"},
        {"n": datetime(2026, 1, 2, 3, 4, 5), "b": 1, "c": None},  # noqa: DTZ001
    ]


@pytest.mark.slow
def test_a_range_is_replaced_by_rows_with_new_columns(bench):
    bench.make(n=pa.array([1, 2], pa.int32()), d=["mon", "tue"])
    first = bench.batch(
        1, bench.parquet("b.parquet", d=["tue"], b=["x"], n=[BIG]), mode="overwrite", where="d = 'tue'"
    )
    second = bench.batch(2, bench.parquet("c.parquet", d=["tue"], c=["y"], n=[3]), where="d = 'tue'")

    bench.run(first, **WIDEN)
    bench.run(second, **WIDEN)

    assert stored(bench) == [
        {"n": 1, "d": "mon", "b": None, "c": None},
        {"n": 3, "d": "tue", "b": None, "c": "y"},
        {"n": BIG, "d": "tue", "b": "x", "c": None},
    ]


def test_a_row_that_lacks_the_column_of_the_range_lies_outside_of_it(bench):
    bench.make(n=[1, 2], d=["mon", "tue"])
    file = bench.parquet("b.parquet", n=[3])

    for mode in ("overwrite", "append"):
        bench.failure(bench.batch(1, file, mode=mode, where="d = 'tue'"), **ADD)

    assert bench.rows() == [{"n": 1, "d": "mon"}, {"n": 2, "d": "tue"}]


@pytest.mark.slow
def test_what_the_table_computes_need_not_be_selected_and_may_be_a_range(bench):
    make(
        bench,
        "n BIGINT NOT NULL, doubled BIGINT GENERATED ALWAYS AS (n * 2), given STRING NOT NULL DEFAULT 'none'",
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
    )
    of_range = {"where": "doubled = 8 AND given = 'none'"}

    bench.run(bench.batch(0, bench.parquet("a.parquet", n=[4]), mode="overwrite", **of_range), **ADD)
    bench.run(bench.batch(1, bench.parquet("b.parquet", n=[4], b=["x"]), **of_range), **ADD)
    error = bench.failure(bench.batch(2, bench.parquet("c.parquet", n=[5]), **of_range), **ADD)

    assert "a row lies outside of the range that is replaced" in str(error)
    row = {"n": 4, "doubled": 8, "given": "none"}
    assert bench.rows() == [row | {"b": "x"}, row | {"b": None}]


def test_a_range_is_one_of_columns_that_the_table_has(bench):
    """Delta looks for the rows to remove before it adds the column."""
    bench.make(n=[1])
    file = bench.parquet("b.parquet", n=[2], y=[2026])

    error = bench.failure(bench.batch(1, file, mode="overwrite", where="y = 2026"), **ADD)

    assert "`y` cannot be resolved" in error.what
    assert bench.rows() == [{"n": 1}]
    assert types(bench) == {"n": "long"}


# ---- partitions and declared columns ------------------------------------------------------------


def test_partition_columns_never_change(bench):
    first = bench.parquet("a.parquet", n=[1], P=["x"])
    bench.run(bench.batch(0, first), partition_by=("P",), **WIDEN)

    with pytest.raises(InputError, match="partitioned by"):
        bench.run(bench.batch(1, first), partition_by=("n",), **WIDEN)
    with pytest.raises(SchemaMismatchError, match="P string partitions the table and is missing"):
        bench.run(bench.batch(1, bench.parquet("b.parquet", n=[2], b=[1])), **WIDEN)
    error = bench.failure(bench.batch(1, bench.parquet("c.parquet", n=[2], p=[""], b=[1])), **WIDEN)
    assert "partition column P has an empty text" in error.what
    bench.run(bench.batch(1, bench.parquet("d.parquet", b=[5], p=["y"], n=[2])), partition_by=("P",), **WIDEN)

    assert DeltaTable(str(bench.table)).metadata().partition_columns == ["P"]
    assert bench.rows() == [{"n": 1, "P": "x", "b": None}, {"n": 2, "P": "y", "b": 5}]


def test_declared_columns_are_in_every_select_and_others_come_and_go(bench):
    declared = {"table_columns": {"z": "bigint", "a": "decimal(21,2)"}, **WIDEN}
    bench.run(bench.batch(0, bench.parquet("a.parquet", b=["x"], a=[1], z=[1])), **declared)
    bench.run(bench.batch(1, bench.parquet("b.parquet", z=[2], a=[2], c=[0.5])), **declared)

    with pytest.raises(SchemaMismatchError, match=r"a decimal\(21,2\) is declared and missing in the SELECT"):
        bench.run(bench.batch(2, bench.parquet("c.parquet", z=[3])), **declared)
    with pytest.raises(SchemaMismatchError, match="z is double in the SELECT and declared as bigint"):
        bench.run(bench.batch(2, bench.parquet("d.parquet", z=[0.5], a=[1])), **declared)

    assert list(types(bench).items()) == [
        ("z", "long"),
        ("a", "decimal(21,2)"),
        ("b", "string"),
        ("c", "double"),
    ]
    assert bench.rows() == [
        {"z": 1, "a": Decimal("1.00"), "b": "x", "c": None},
        {"z": 2, "a": Decimal("2.00"), "b": None, "c": 0.5},
    ]


# ---- tables of others ---------------------------------------------------------------------------


def make(bench, columns, *more):
    bench.spark.sql(f"CREATE TABLE delta.`{bench.table}` ({columns}) USING DELTA {' '.join(more)}")


def test_a_table_with_column_mapping(bench):
    make(
        bench,
        "n INT, `odd name` STRING, s STRUCT<y: INT>",
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    )
    sql = "SELECT n, 'x' AS `other name`, named_struct('x', 2L, 'Y', 3L) AS s FROM @data"

    bench.run(bench.batch(0, bench.parquet("a.parquet", n=[BIG])), sql=sql, **WIDEN)

    rows = bench.spark.read.format("delta").load(str(bench.table))
    assert rows.columns == ["n", "odd name", "s", "other name"]
    assert [row.asDict(recursive=True) for row in rows.collect()] == [
        {"n": BIG, "odd name": None, "s": {"y": 3, "x": 2}, "other name": "x"}
    ]


@pytest.mark.slow
def test_a_check_constraint_is_kept_and_its_column_is_not_widened(bench):
    make(bench, "n INT, m INT")
    bench.spark.sql(f"ALTER TABLE delta.`{bench.table}` ADD CONSTRAINT small CHECK (n < 10)")

    bench.run(
        bench.batch(0, bench.parquet("a.parquet", n=[4], b=[1])),
        sql="SELECT CAST(n AS int) AS n, b, 5L AS m FROM @data",
        **WIDEN,
    )
    error = bench.failure(
        bench.batch(1, bench.parquet("b.parquet", n=[40], c=[1])),
        sql="SELECT CAST(n AS int) AS n, c FROM @data",
        **WIDEN,
    )
    assert isinstance(error, SqlError)
    assert "CHECK constraint small (n < 10) violated" in error.what
    error = bench.failure(bench.batch(1, bench.parquet("c.parquet", n=[4])), **WIDEN)
    assert "n has data type INT and cannot be altered to data type BIGINT" in error.what

    assert stored(bench) == [{"n": 4, "m": 5, "b": 1}]
