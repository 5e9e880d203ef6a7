"""What cannot be loaded is put aside, all of it and nothing else, and the rest is in the table."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.java_gateway import get_field, set_field
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.cli.quarantine import read_quarantine
from airflow_provider_scope.delta.log import read_table
from airflow_provider_scope.exceptions import BadFileError, BadRecordError, BatchNotInTableError, InputError
from airflow_provider_scope.spark.files.quarantine import COLUMNS, Quarantine
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.target import Target
from airflow_provider_scope.specs import Merge
from airflow_provider_scope.specs.write import for_plan
from airflow_provider_scope.stores.local import LocalStorage
from tests.spark.quarantined_orders import ASIDE, HEADER, ORDERS, aside, commit_says, killed, orders
from tests.spark.reading_cases import STRAY_QUOTE

pytestmark = pytest.mark.spark


def by_file(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        ({**row, "file": row["file"].rpartition("/")[2]} for row in rows),
        key=lambda row: (row["file"], row["record"] or 0),
    )


@pytest.mark.compiled
def test_bad_rows_go_aside_with_file_number_rule_and_text_and_the_others_are_loaded(bench):
    first = bench.text(
        "b.csv",
        HEADER + '1,Käse,9.50,2026-01-31\nx,Brot,1.00,2026-02-01\n3,"Öl, 1 l",1.239,2026-02-01\n4,Ei\n',
    )
    second = bench.text("[a] {1}.csv", HEADER + "5,Salz,0.49,2026-02-02\n6,Mehl,0.99,2026-02-30\n")

    bench.run(bench.batch(0, first, second), **orders())

    assert [(row["nr"], row["article"], str(row["amount"])) for row in bench.rows()] == [
        (1, "Käse", "9.50"),
        (5, "Salz", "0.49"),
    ]
    assert aside(bench) == [
        {
            "batch": 0,
            "file": "[a] {1}.csv",
            "record": 2,
            "rule": "day is not date",
            "value": "2026-02-30",
            "raw": '{"nr":"6","article":"Mehl","amount":"0.99","day":"2026-02-30"}',
        },
        {
            "batch": 0,
            "file": "b.csv",
            "record": 2,
            "rule": "nr is not int",
            "value": "x",
            "raw": '{"nr":"x","article":"Brot","amount":"1.00","day":"2026-02-01"}',
        },
        {
            "batch": 0,
            "file": "b.csv",
            "record": 3,
            "rule": "amount is not decimal(10,2)",
            "value": "1.239",
            "raw": '{"nr":"3","article":"Öl, 1 l","amount":"1.239","day":"2026-02-01"}',
        },
        {
            "batch": 0,
            "file": "b.csv",
            "record": 4,
            "rule": "it has not the 4 fields of the columns nr, article, amount, day",
            "value": "4,Ei",
            "raw": "4,Ei",
        },
    ]
    rules = Counter(row["rule"] for row in aside(bench))
    assert commit_says(bench)["quarantined"] == {"records": {"out_of": 6, "rules": rules}}


def test_files_that_cannot_be_read_go_aside_whole_and_the_others_are_loaded(bench):
    good = bench.text("good.csv", HEADER + "1,a,1.00,2026-01-01\n")
    other = bench.text("other header.csv", "nr,amount,article,day\n2,1.00,b,2026-01-01\n")
    text = (HEADER + "3,c,1.00,2026-01-01\n" * 5_000).encode()
    cut = bench.file("cut.csv.gz", gzip.compress(text)[:-40])
    latin = bench.file("latin.csv", (HEADER + "4,Käse,1.00,2026-01-01\n").encode("latin-1"))

    quotes = bench.text("quotes.csv", HEADER + '1,"a" b,1.00,2026-01-01\n')

    bench.run(bench.batch(0, good, other, cut, latin, quotes), **orders())

    assert [row["nr"] for row in bench.rows()] == [1]
    found = aside(bench)
    assert [row["file"] for row in found] == ["cut.csv.gz", "latin.csv", "other header.csv", "quotes.csv"]
    assert all(row["record"] is None and row["raw"] is None for row in found)
    assert "Unexpected end of input stream" in found[0]["rule"]
    assert found[1]["rule"] == "it has bytes that are not UTF-8"
    assert "CSV header does not conform" in found[2]["rule"]
    assert found[3]["rule"] == STRAY_QUOTE
    assert found[3]["value"].startswith("a: a quote in a quoted field is doubled, unless")
    (files,) = commit_says(bench)["quarantined"].values()
    assert (files["out_of"], sum(files["rules"].values())) == (5, 4)


def test_a_batch_of_one_file_that_is_not_utf_8_goes_aside(bench):
    file = bench.file("latin.csv", "a,b\n1,café\n".encode("latin-1"))
    columns = {"a": "int", "b": "string"}

    rows, (bad,) = bench.sort(bench.batch(0, file), format="csv", columns=columns, options={"header": "true"})

    assert rows == []
    assert (bad["file"], bad["rule"]) == (file.path, "it has bytes that are not UTF-8")


@pytest.mark.slow
@pytest.mark.compiled
def test_orc_files_with_times_that_java_cannot_read_go_aside_though_spark_does_not_name_them(bench):
    import pyarrow as pa
    from pyarrow import orc

    folder = bench.folder / "landing"
    folder.mkdir()
    for name, micros in {"good": -2_000_000, "new": 1, "old": -2_000_001, "older": -9_999_999_999}.items():
        times = pa.array([None, [micros]], pa.list_(pa.timestamp("us", tz="UTC")))
        orc.write_table(pa.table({"t": times}), str(folder / name))

    files = [bench.entry(folder / name) for name in ("good", "new", "old", "older")]
    error = bench.failure(bench.batch(0, *files), reads=True, format="orc")
    rows, bad = bench.sort(bench.batch(0, *files), format="orc")

    assert isinstance(error, BadFileError)
    assert error.what.startswith("2 of the 4 files of batch 0 cannot be loaded:")
    assert len(rows) == 4
    assert [row["file"] for row in by_file(bad)] == ["old", "older"]


def orc_of_java(spark, path, *times):
    jvm = spark._jvm
    orc, conf = jvm.org.apache.orc, spark._jsparkSession.sessionState().newHadoopConf()
    kind = orc.TypeDescription.fromString("struct<t:timestamp>")
    options = orc.OrcFile.writerOptions(conf).setSchema(kind)
    writer = orc.OrcFile.createWriter(jvm.org.apache.hadoop.fs.Path(str(path)), options)
    batch = kind.createRowBatch()
    for number, (millis, nanos) in enumerate(times):
        time = jvm.java.sql.Timestamp(millis)
        time.setNanos(nanos)
        get_field(batch, "cols")[0].set(number, time)
    set_field(batch, "size", len(times))
    writer.addRowBatch(batch)
    writer.close()


@pytest.mark.compiled
@pytest.mark.parametrize("columns", [None, {"t": "timestamp"}], ids=["not declared", "declared"])
def test_orc_files_of_java_with_nanoseconds_go_aside_and_times_before_1970_stay_what_they_are(bench, columns):
    folder = bench.folder / "landing"
    folder.mkdir()
    orc_of_java(
        bench.spark, folder / "good", (-1_300, 700_000_000), (-5_001, 999_999_000), (300, 300_000_000)
    )
    orc_of_java(bench.spark, folder / "bad", (5_000, 0), (-2_300, 700_000_001))
    good = bench.spark.read.orc(f"{folder}/good")
    good.withColumn("t", F.timestamp_micros(F.lit(-7_000_001))).write.orc(f"{folder}/spark")
    (written,) = (folder / "spark").glob("part-*")

    files = [bench.entry(path) for path in (folder / "good", folder / "bad", written)]
    rows, (bad,) = bench.sort(bench.batch(0, *files), format="orc", columns=columns)

    epoch = datetime(1970, 1, 1, tzinfo=UTC if columns else None)
    micros = {(row["t"] - epoch) / timedelta(microseconds=1) for row in rows}
    assert micros == {-1_300_000, -5_000_001, 300_000, -7_000_001}
    assert bad["file"] == files[1].path


@pytest.mark.slow
@pytest.mark.compiled
def test_orc_files_with_nanoseconds_at_any_depth_go_aside(bench):
    import pyarrow as pa
    from pyarrow import orc

    folder = bench.folder / "landing"
    folder.mkdir()
    clock, instant = pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")
    kinds = {
        "top": instant,
        "struct": pa.struct({"a b": clock}),
        "list": pa.list_(pa.list_(instant)),
        "key": pa.map_(clock, pa.int32()),
        "value": pa.map_(pa.int32(), pa.list_(pa.struct({"x": clock}))),
    }

    def table(bad):
        low = dict.fromkeys(kinds, 7_000) | {bad: 7_001}
        values = {
            "top": low["top"],
            "struct": {"a b": low["struct"]},
            "list": [None, [None, low["list"]]],
            "key": [(low["key"], None)],
            "value": [(1, None), (2, [None, {"x": low["value"]}])],
        }
        return pa.table({name: pa.array([None, values[name]], kind) for name, kind in kinds.items()})

    for name in ("good", *kinds):
        orc.write_table(table(name), str(folder / name))

    files = [bench.entry(folder / name) for name in ("good", *kinds)]
    error = bench.failure(bench.batch(0, *files), reads=True, format="orc")
    rows, bad = bench.sort(bench.batch(0, *files), format="orc", sql="SELECT `list` FROM @data")

    assert isinstance(error, BadFileError)
    assert error.what.startswith("5 of the 6 files of batch 0 cannot be loaded:")
    assert len(rows) == 2
    rule = "has nanoseconds that a timestamp cannot hold"
    assert {row["file"]: row["rule"] for row in by_file(bad)} == {name: f"{name} {rule}" for name in kinds}


@pytest.mark.compiled
def test_a_json_record_goes_aside_with_the_key_that_is_wrong(bench):
    odd = '{"id":"x","n":1}\n{"n":{"b":2}}\n{"id":\n{"s":{"a b":"y"}}\n7\n{"id":1}\n[{"id":2},{"id":"x"}]\n'
    columns = {"id": "int", "n": "bigint", "s": "struct<`a b`: int>"}

    sql = "SELECT id, n FROM @data"
    file = bench.text("a.json", odd)
    rows, bad = bench.sort(bench.batch(0, file), format="json", columns=columns, sql=sql)

    assert rows == [{"id": 1, "n": None}]
    assert [(row["record"], row["rule"]) for row in by_file(bad)] == [
        (1, "id is not int"),
        (2, "n is not bigint"),
        (3, "it is not JSON, or no object"),
        (4, "s is not struct<a b:int>"),
        (5, "it is not JSON, or no object"),
        (7, "it is not JSON with values of the declared types"),
        (8, "it is not JSON with values of the declared types"),
    ]


def test_rows_that_break_a_rule_go_aside_and_null_breaks_it(bench):
    file = bench.text(
        "a.csv", HEADER + "1,a,1.00,2026-01-01\n2,b,-1.00,2026-01-01\n3,c,,2026-01-01\n4,,5.00,\n"
    )

    bench.run(
        bench.batch(0, file),
        **orders(
            sql="SELECT nr, article, amount * 2 AS twice, rand() AS odd, source_file_uri FROM @data",
            expect={"positive": "twice > 0", "named": "article IS NOT NULL"},
        ),
    )

    assert [(row["nr"], str(row["twice"])) for row in bench.rows()] == [(1, "2.00")]
    found = aside(bench)
    assert sorted((row["rule"], json.loads(row["raw"])["nr"]) for row in found) == [
        ("named", 4),
        ("positive", 2),
        ("positive", 3),
    ]
    assert {row["file"] for row in found} == {"a.csv"}
    rules = {"positive": 2, "named": 1}
    assert commit_says(bench)["quarantined"] == {"rows": {"out_of": 4, "rules": rules}}


def test_a_batch_without_anything_bad_makes_no_quarantine(bench):
    bench.run(bench.batch(0, bench.text("a.csv", HEADER + "1,a,1.00,2026-01-01\n")), **orders())

    assert len(bench.rows()) == 1
    assert not bench.folder.joinpath("table_quarantine").exists()
    assert "quarantined" not in commit_says(bench)


def test_the_record_that_an_error_names_is_the_first_of_its_kind_in_its_file(bench):
    lines = "".join(f"{n},a,{'x' if n in (7_000, 7_100) else '1'},2026-01-01\n" for n in range(1, 8_001))
    entry = bench.batch(0, bench.text("a.csv", HEADER + lines))
    bench.spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        error = bench.failure(entry, reads=True, **orders(bad_records="fail"))
    finally:
        bench.spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert "(number 7,000 of the file)" in error.what


def test_if_nothing_can_be_read_the_table_gets_a_commit_without_rows(bench):
    bench.make(a=[1])
    (bench.folder / "landing").mkdir()
    (bench.folder / "landing" / "bad").write_bytes(b"PAR1 no")

    version = bench.run(bench.batch(1, bench.entry(bench.folder / "landing" / "bad")), **ASIDE)

    assert version == 1
    assert bench.rows() == [{"a": 1}]
    assert [row["file"] for row in aside(bench)] == ["bad"]
    assert commit_says(bench)["seq"] == 1


def test_a_table_is_not_made_from_files_of_which_none_can_be_read(bench):
    (bench.folder / "landing").mkdir()
    (bench.folder / "landing" / "bad").write_bytes(b"PAR1 no")

    error = bench.failure(bench.batch(0, bench.entry(bench.folder / "landing" / "bad")), **ASIDE)

    assert isinstance(error, BadFileError)
    assert not DeltaTable.is_deltatable(str(bench.table))


def test_if_all_records_are_bad_the_table_is_made_without_rows(bench):
    bench.run(bench.batch(0, bench.text("a.csv", HEADER + "x,a,1.00,2026-01-01\n")), **orders())

    assert bench.rows() == []
    assert DeltaTable(str(bench.table)).schema().to_arrow().names == list(ORDERS)
    assert [(row["record"], row["rule"]) for row in aside(bench)] == [
        (None, "none of its records can be loaded"),
        (1, "nr is not int"),
    ]


def test_a_file_without_a_good_record_is_aside_as_a_whole_beside_its_records(bench):
    """So that it can be given back: it has no row in the table."""
    lost = bench.text("[lost] 1%.csv", HEADER + "x,a,1.00,2026-01-01\n2,b,y,2026-01-01\n3\n")
    part = bench.text("part.csv", HEADER + "1,a,1.00,2026-01-01\nx,a,1.00,2026-01-01\n")
    rest = [bench.text("good.csv", HEADER + "2,b,1.00,2026-01-01\n"), bench.text("empty.csv", HEADER)]

    bench.run(bench.batch(0, lost, part, *rest), **orders())

    assert [row["nr"] for row in bench.rows()] == [1, 2]
    found = aside(bench)
    assert [(row["file"], row["record"]) for row in found] == [
        ("[lost] 1%.csv", None),
        *[("[lost] 1%.csv", number) for number in (1, 2, 3)],
        ("part.csv", 2),
    ]
    assert (found[0]["rule"], found[0]["raw"]) == ("none of its records can be loaded", None)
    counts = {unit: sum(bad["rules"].values()) for unit, bad in commit_says(bench)["quarantined"].items()}
    assert counts == {"records": 4, "files": 1}
    shown = read_quarantine(f"file://{bench.table}_quarantine", LocalStorage(), bench.plan.pipeline)
    assert [(one.whole is not None, one.records) for one in shown] == [(True, 3), (False, 1)]


# ---- exactly once in both tables -----------------------------------------------------------------------


BAD = HEADER + "1,a,1.00,2026-01-01\nx,b,1.00,2026-01-01\n"


@pytest.mark.slow
def test_after_a_death_between_the_tables_the_next_try_replaces_what_is_aside_and_a_third_adds_nothing(
    bench, monkeypatch
):
    entry = bench.batch(0, bench.text("a.csv", BAD))
    killed(bench, monkeypatch, entry, **orders())
    assert len(aside(bench)) == 1
    assert not DeltaTable.is_deltatable(str(bench.table))

    assert bench.run(entry, **orders()) == 0
    assert bench.run(entry, **orders()) is None

    assert [row["nr"] for row in bench.rows()] == [1]
    assert [row["record"] for row in aside(bench)] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fail", "quarantine"])
def test_after_a_death_a_corrected_declaration_leaves_nothing_aside(bench, monkeypatch, mode):
    entry = bench.batch(0, bench.text("a.csv", BAD))
    killed(bench, monkeypatch, entry, **orders())

    bench.run(entry, **orders(columns={**ORDERS, "nr": "string"}, bad_records=mode))

    assert [row["nr"] for row in bench.rows()] == ["1", "x"]
    assert aside(bench) == []


def test_a_batch_that_is_given_up_leaves_nothing_aside(bench, monkeypatch):
    bench.run(bench.batch(0, bench.text("a.csv", BAD)), **orders())
    entry = bench.batch(1, bench.text("b.csv", BAD))
    killed(bench, monkeypatch, entry, **orders())
    assert [row["batch"] for row in aside(bench)] == [0, 1]
    # Rows that are replaced are then in one file with others.
    DeltaTable(f"{bench.table}_quarantine").optimize.compact()

    bench.run(entry, **orders(fence=True))

    (newest,) = DeltaTable(str(bench.table)).history(1)
    assert json.loads(newest["userMetadata"])["abandoned"] is True
    assert [row["batch"] for row in aside(bench)] == [0]
    assert [row["nr"] for row in bench.rows()] == [1]


@pytest.mark.slow
def test_what_a_try_believed_dead_puts_aside_meanwhile_does_not_count(bench, monkeypatch):
    """It had read the plan before, with other columns; its commit to the table is refused by Delta."""
    entry = bench.batch(0, bench.text("a.csv", BAD))
    real = Target.write
    puts: list[int] = []

    def late(target: Target, transaction: Any, rows: Any, notes: Any = None) -> Any:
        version = real(target, transaction, rows, notes)
        if notes is not None:
            other = bench.spark.sql(
                f"SELECT '{bench.plan.pipeline}' pipeline, 0L batch, 'f' file, 1L record, 'other' rule, "
                "'' value, '' raw, current_timestamp() quarantined_at"
            )
            puts.append(Target(bench.spark, target.plan).quarantines[-1].put(entry, other, 1))
        return version

    monkeypatch.setattr(Target, "write", late)
    bench.run(entry, **orders())

    assert puts == [1]
    assert [row["rule"] for row in aside(bench)] == ["nr is not int"]


@pytest.mark.slow
def test_commands_read_the_tables_of_a_session_whose_tables_have_column_mapping_and_vectors(bench):
    defaults = {"columnMapping.mode": "name", "enableDeletionVectors": "true"}
    defaults = {
        f"spark.databricks.delta.properties.defaults.{name}": value for name, value in defaults.items()
    }
    of_both = bench.batch(0, bench.text("a.csv", BAD + "y,c,1.00,2026-01-01\n"))
    merged = f"{bench.plan.table}_merged"
    write = for_plan(Merge(primary_key="id", sequence_by="at", hard_delete="gone"))
    deletes = bench.parquet("b.parquet", id=[1, 2], at=[1, 1], gone=[True, True])
    with with_settings(bench.spark, defaults):
        bench.run(bench.batch(0, deletes), table=merged, write=write)
        bench.run(of_both, **orders())
    place = f"{bench.plan.table}_quarantine"
    bench.spark.sql(f"DELETE FROM delta.`{place}` WHERE raw LIKE '%\"y\"%'")

    (file,) = read_quarantine(place, LocalStorage(), bench.plan.pipeline)
    assert file.records == 1
    parts = read_table(f"{merged}/_tombstones", LocalStorage(), ["batch"])
    assert [row["batch"] for part in parts for row in part.to_pylist()] == [0, 0]


def test_another_table_in_the_place_of_the_quarantine_is_refused(bench):
    bench.spark.range(3).write.format("delta").save(f"{bench.table}_quarantine")

    error = bench.failure(bench.batch(0, bench.text("a.csv", BAD)), **orders())

    assert isinstance(error, InputError)
    assert "is not a quarantine" in error.what
    assert not DeltaTable.is_deltatable(str(bench.table))


# ---- everything is somewhere -----------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.loads) for seed in range(2, 6))]
)
def test_every_record_of_random_files_is_in_one_of_the_two_tables(bench, seed):
    """Counted and compared with Python's own reader of CSV."""
    import random

    rng = random.Random(f"aside {seed}")
    expected: Counter[tuple[str, ...]] = Counter()
    files = []
    for number in range(rng.randint(1, 5)):
        out = io.StringIO()
        writer = csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"]))
        writer.writerow(ORDERS)
        for _ in range(rng.randint(0, 400)):
            row = [
                rng.choice(["1", "22", "x", "", "-7"]),
                rng.choice(["a", 'say "b"', "c,d", "", "ü"]),
                rng.choice(["1.00", "1", "1,5", "9999999999", "0.5"]),
                rng.choice(["2026-01-01", "01.01.2026", ""]),
            ]
            row += rng.choice([[]] * 9 + [["more"]])
            writer.writerow(row)
            expected[(*row,)] += 1
        name = rng.choice(["{}.csv", "[{}] x.csv", "ä {}*.csv"]).format(number)
        files.append(bench.file(name, out.getvalue().encode()))

    loaded, bad = bench.sort(bench.batch(0, *files), **orders())

    def text(value: Any) -> str:
        return "" if value is None else str(value)

    found: Counter[tuple[str, ...]] = Counter()
    good = len(loaded)
    rows = [row for row in bad if row["record"] is not None]
    for row in rows:
        raw = row["raw"]
        if raw.startswith("{"):
            fields = json.loads(raw)
            found[tuple(text(fields.get(name)) for name in ORDERS)] += 1
        else:
            (record,) = csv.reader([raw])
            found[(*record,)] += 1
    assert good + len(rows) == expected.total()
    assert not found - expected
    is_good = {
        row
        for row in expected
        if len(row) == 4 and row[0] != "x" and row[2] in ("1.00", "1", "0.5") and row[3] != "01.01.2026"
    }
    assert {row for row in expected if row not in is_good} == set(found)
    assert sum(count for row, count in expected.items() if row in is_good) == good


LIMITED = HEADER + "1,a,1.00,2026-01-01\nx,b,1.00,2026-01-01\n3,c,1.00,2026-01-01\n4,d,-1.00,2026-01-01\n"


def test_a_batch_with_more_bad_records_than_allowed_fails_and_writes_nothing(bench):
    batch = bench.batch(0, bench.text("a.csv", LIMITED), bench.text("b.csv", "other\nheader\n"))
    of_orders = orders(expect={"positive": "amount > 0"})
    too_low: dict[str, dict[str, Any]] = {
        "max_bad_records=2": {"max_bad_records": 2},
        "max_bad_share=0.4": {"max_bad_share": 0.4},  # one of two files
    }

    for limit, limits in too_low.items():
        error = bench.failure(batch, **of_orders, **limits)

        assert isinstance(error, BadRecordError)
        assert error.what.startswith(
            f"1 of 4 records, 1 of 3 rows, 1 of 2 files of batch 0 are bad, which is more than {limit}: "
        )
        assert "1 record: nr is not int ('x')" in error.what
    assert not [*bench.folder.glob("table*/_delta_log/*.json")]

    bench.run(batch, **of_orders, max_bad_records=3, max_bad_share=0.5)

    assert [row["nr"] for row in bench.rows()] == [1, 3]
    assert len(aside(bench)) == 3


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_a_file_whose_name_is_the_uri_of_another_one_goes_aside_alone(bench, kind):
    name, other = f"a b+é.{kind}", f"a%20b+é.{kind}"
    plan = {"format": "csv", "columns": {"n": "int"}, "options": {"header": "true"}}
    if kind == "csv":
        good, bad = bench.text(name, "n\n1\n"), bench.text(other, "n\nx\n")
    elif kind == "csv.gz":
        good = bench.file(name, gzip.compress(b"n\n1\n"))
        bad = bench.file(other, gzip.compress(b"n\n" + b"0123456789" * 9_000)[:-20])
    else:
        plan = {}
        good, bad = bench.parquet(name, n=[1]), bench.file(other, b"not parquet")
    entry = bench.batch(0, good, bad)

    rows, aside_rows = bench.sort(entry, **plan, sql="SELECT n, source_file_uri AS file FROM @data")
    error = bench.failure(entry, reads=True, **plan)

    assert rows == [{"n": 1, "file": good.path}]
    assert {row["file"] for row in aside_rows} == {bad.path}
    assert bad.path in error.what
    assert good.path not in error.what


def test_rows_are_counted_where_the_session_compacts_files(bench):
    settings = {"spark.databricks.delta.autoCompact.enabled": "true"}
    settings["spark.databricks.delta.autoCompact.minNumFiles"] = "2"
    values = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items()]
    rows = bench.spark.range(4).repartition(4).selectExpr(*values)
    with with_settings(bench.spark, settings), pytest.raises(BatchNotInTableError, match="received 4 rows"):
        Quarantine(bench.spark, "p", bench.plan.quarantines[0]).put(bench.batch(0), rows, 5)


@pytest.mark.parametrize("kind", ["varchar(3)", "array<char(2)>"])
def test_a_batch_of_bad_files_alone_goes_aside_whatever_length_its_texts_may_have(bench, kind):
    bad = bench.file("a.parquet", b"not parquet")

    rows, aside_rows = bench.sort(bench.batch(0, bad), columns={"v": kind}, sql="SELECT v FROM @data")

    assert rows == []
    assert [row["file"] for row in aside_rows] == [bad.path]
