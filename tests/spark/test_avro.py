"""What the readers of Avro would lose or change: by setting, codec, calendar, or beside files of others."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.files import footers
from airflow_provider_scope.spark.files.listing import AVRO_READER
from airflow_provider_scope.spark.session import with_settings
from tests.spark.reading_cases import BLOCKS, DECIMAL, MARK, avro_file, raw

pytestmark = [pytest.mark.spark, pytest.mark.compiled]

CODECS = ("uncompressed", "deflate", "snappy", "bzip2", "xz", "zstandard")
FAR = dt.date(1, 1, 1)


@pytest.mark.slow
def test_what_spark_wrote_is_read_in_every_codec_and_calendar_under_any_name(bench):
    """Of a name that does not end in .avro, a setting of Hadoop's lets Spark read no row, and say nothing."""
    files = []
    for number, codec in enumerate(CODECS):
        calendar = {"spark.sql.avro.datetimeRebaseModeInWrite": "LEGACY" if number % 2 else "CORRECTED"}
        folder = bench.folder / codec
        with with_settings(bench.spark, calendar):
            rows = bench.spark.sql(f"SELECT {number} n, DATE'0001-01-01' d, TIMESTAMP'1800-01-01' t, 'é' s")
            rows.coalesce(1).write.format(AVRO_READER).option("compression", codec).save(f"file://{folder}")
        (written,) = folder.glob("*.avro")
        files.append(bench.file(f"{number}.bin", written.read_bytes()))
    hadoop = bench.spark._jsc.hadoopConfiguration()
    hadoop.set("avro.mapred.ignore.inputs.without.extension", "true")
    try:
        rows = bench.read(bench.batch(0, *files), format="avro")
    finally:
        hadoop.unset("avro.mapred.ignore.inputs.without.extension")

    then = dt.datetime(1800, 1, 1, tzinfo=dt.UTC)
    assert sorted(rows, key=lambda row: row["n"]) == [
        {"n": number, "d": FAR, "t": then, "s": "é"} for number in range(len(CODECS))
    ]


def test_files_of_several_schemas_are_one_batch_and_a_later_one_has_the_types_of_the_table(bench):
    inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "float"}]}
    wide = {**DECIMAL, "precision": 12, "scale": 3}
    first = bench.file("1.avro", avro_file({"id": "int", "v": DECIMAL}, (1, Decimal("1.25"))))
    second = avro_file({"v": ["null", wide], "id": "long", "i": inner}, (Decimal("2.125"), 2**40, {"x": 0.5}))
    strings = {"type": "string", "avro.java.string": "String"}
    third = bench.file("3.avro", avro_file({"id": "int", "s": strings}, (3, "x")))

    bench.run(bench.batch(0, first, bench.file("2.avro", second)), format="avro")
    bench.run(bench.batch(1, third), format="avro", schema_evolution="add", sql="SELECT id, s FROM @data")

    assert bench.rows() == [
        {"id": 1, "v": Decimal("1.250"), "i": None, "s": None},
        {"id": 2**40, "v": Decimal("2.125"), "i": {"x": 0.5}, "s": None},
        {"id": 3, "v": None, "i": None, "s": "x"},
    ]


def test_a_text_with_bytes_that_are_not_utf8_keeps_them_whoever_wrote_it(bench):
    """Java decodes a text if the schema says so, and each byte that it does not know becomes another text."""
    plain, of_java = raw({"v": "string"}, b"\x04\xff\xfe"), {"type": "string", "avro.java.string": "String"}
    files = [bench.file("1.avro", plain), bench.file("2.avro", raw({"v": of_java}, b"\x04\xff\xfe"))]

    rows = bench.read(bench.batch(0, *files), format="avro", sql="SELECT hex(v) AS v FROM @data")

    assert rows == [{"v": "FFFE"}, {"v": "FFFE"}]


def test_bad_records_and_bad_files_are_put_aside_and_the_others_are_loaded(bench):
    large = b"\x18" + (2**64 * 5 + 123).to_bytes(12)
    content = raw({"v": DECIMAL}, b"\x02\x01", large, b"\x02\x02")
    files = [bench.file("good.avro", content), bench.file("cut.avro", content[:-18])]
    other = bench.file("other.avro", BLOCKS)

    good, bad = bench.sort(bench.batch(0, *files, other), format="avro", columns={"v": "decimal(10,2)"})

    assert good == [{"v": Decimal("0.01")}, {"v": Decimal("0.02")}]
    assert {(Path(row["file"]).name, row["record"], row["rule"]) for row in bad} == {
        ("good.avro", 2, "v is not decimal(10,2)"),
        ("cut.avro", None, "it cannot be read: the Avro file ends inside a block"),
        ("other.avro", None, "it has the column id, which is not declared; it has no column v"),
    }


@pytest.mark.parametrize("size", [b"\x04", b"\x7e"])
def test_a_block_that_says_that_it_is_longer_loses_no_row_in_silence(bench, size):
    """Java's reader would come to the end of the file, and give no row of the block."""
    header, _, _ = BLOCKS.partition(MARK)
    file = bench.file("a.avro", header + MARK + b"\x02" + size + b"\x02" + MARK)

    error = bench.failure(bench.batch(0, file), reads=True, format="avro")

    assert "the Avro file ends inside a block" in error.what


def test_a_spark_without_its_reader_is_told_the_jar(bench, monkeypatch):
    monkeypatch.setattr(footers, "AVRO_READER", "org.apache.spark.sql.avro.Missing")

    error = bench.failure(bench.batch(0, bench.file("a.avro", BLOCKS)), reads=True, format="avro")

    assert isinstance(error, InputError)
    assert "org.apache.spark:spark-avro_2.13:4." in error.do
