"""All data sets of Vega: CSV, TSV, JSON and parquet, compared cell by cell."""

from __future__ import annotations

import functools

import pyarrow.parquet as pq
import pytest

from tests.datasets import lab, packages, vega
from tests.datasets.generator import Case, File
from tests.datasets.kinds import Kind

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.vega]

LEFT_OUT = {
    r".*\.png": "an image",
    r".*\.arrow": "a format that the operator does not read",
}
"""Regular expression of the name -> why the file is not loaded."""
NO_ROWS = {
    "londonBoroughs.json": "an array that holds numbers and arrays",
    "us-10m.json": "an array that holds numbers and arrays",
    "world-110m.json": "an array that holds numbers and arrays",
}
"""Name -> why a JSON file is not rows of one type."""
SUFFIXES = (".csv", ".tsv", ".json", ".parquet")


@functools.cache
def found() -> dict[str, packages.Found]:
    return {
        path.name: packages.Found(path.name, path.read_bytes) for path in sorted(vega.install().iterdir())
    }


@pytest.mark.parametrize("header", [True, False])
def test_every_cell_of_every_csv_is_read(spark, tmp_path, header):
    wrong = []
    for name, one in found().items():
        if name.endswith((".csv", ".tsv")):
            try:
                lab.check_read(lab.Lab(spark, tmp_path, packages.case(one, header=header)))
            except AssertionError as err:
                wrong.append(f"{name}: {str(err)[:800]}")
    assert wrong == []


@pytest.mark.parametrize("lines", [True, False])
def test_every_value_of_every_json_document_is_read(spark, tmp_path, lines):
    wrong = []
    for name, one in found().items():
        if name.endswith(".json") and name not in NO_ROWS:
            try:
                case = packages.case(one)
                lab.check_read(lab.Lab(spark, tmp_path, packages.as_lines(case) if lines else case))
            except (AssertionError, packages.NoTableError) as err:
                wrong.append(f"{name}: {str(err)[:800]}")
    assert wrong == []


def test_three_million_rows_of_parquet_are_the_ones_that_arrow_reads(spark, tmp_path):
    content = found()["flights-3m.parquet"].read()
    (tmp_path / "p").write_bytes(content)
    wanted = pq.read_table(tmp_path / "p")
    kinds = {
        "int16": "smallint",
        "int32": "int",
        "int64": "bigint",
        "string": "string",
        "large_string": "string",
    }
    kinds |= {"double": "double", "float": "float", "int8": "tinyint", "timestamp[us]": "timestamp_ntz"}
    columns = [(f.name, Kind(kinds[str(f.type)])) for f in wanted.schema]

    got = lab.Lab(spark, tmp_path, Case(None, "parquet", columns, [File("[f].parquet", content, [])])).read()

    order = [(name, "ascending") for name in wanted.column_names]
    assert got.cast(wanted.schema).sort_by(order).equals(wanted.sort_by(order))


def test_each_file_is_loaded_or_said_to_be_left_out():
    unknown = [n for n in found() if not n.endswith(SUFFIXES) and not packages.why(LEFT_OUT, n)]

    assert unknown == []
    assert len(found()) > 70
