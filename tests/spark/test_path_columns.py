"""Columns whose values are in the paths of the files, compared with what Spark and pyarrow write there."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.exceptions import BadFileError, InputError

pytestmark = pytest.mark.spark

DAY = {"partition_columns": {"d": "date", "h": "int"}}
JSON = {"format": "json", "columns": {"id": "int"}}
ODD = ["a/b", "a=b", "ä%", "x:y", "1", " a ", "__a__", "%41", "a+b", "日", "{'\"}", "a?#b"]


def test_the_values_of_a_path_have_their_types(bench):
    files = [
        bench.text("d=2026-11-25/h=07/a.json", '{"id":1}'),
        bench.text("d=__HIVE_DEFAULT_PARTITION__/x=1/h=-3/a.json", '{"id":2}'),
        bench.text("%64=2026%2D11-26/h=__HIVE_DEFAULT_PARTITION__/b.json", '{"id":3}'),
    ]
    sql = "SELECT *, source_file_uri, d IS NULL AS is_null FROM @data WHERE h IS NULL OR h < 8"

    bench.run(bench.batch(0, *files), **JSON, **DAY, sql=sql)

    day = dt.date(2026, 11, 25)
    assert bench.rows() == [
        {"id": 1, "d": day, "h": 7, "source_file_uri": files[0].path, "is_null": False},
        {"id": 2, "d": None, "h": -3, "source_file_uri": files[1].path, "is_null": True},
        {"id": 3, "d": dt.date(2026, 11, 26), "h": None, "source_file_uri": files[2].path, "is_null": False},
    ]


def test_what_spark_writes_into_folders_comes_back(bench):
    values = [*ODD, None]
    rows = [(i, value, dt.datetime(2026, 1, i + 1, 7, 30)) for i, value in enumerate(values)]  # noqa: DTZ001
    frame = bench.spark.createDataFrame(rows, "id int, s string, t timestamp_ntz")
    folder = bench.folder / "written"
    frame.write.partitionBy("s", "t").parquet(f"file://{folder}")
    files = [bench.entry(path) for path in sorted(folder.rglob("*.parquet"))]

    found = bench.read(
        bench.batch(0, *files), format="parquet", partition_columns="s string, t timestamp_ntz"
    )

    assert sorted((row["id"], row["s"], row["t"]) for row in found) == rows


def test_what_pyarrow_writes_into_folders_comes_back(bench):
    table = pa.table({"id": list(range(len(ODD))), "s": ODD})
    folder = bench.folder / "written"
    parts = ds.partitioning(pa.schema([("s", pa.string())]), flavor="hive")
    ds.write_dataset(table, folder, format="parquet", partitioning=parts)
    files = [bench.entry(path) for path in sorted(folder.rglob("*.parquet"))]

    found = bench.read(bench.batch(0, *files), format="parquet", partition_columns={"s": "string"})

    assert sorted((row["id"], row["s"]) for row in found) == [*enumerate(ODD)]


FAULTS = {
    "h=1": "its path has no folder d=",
    "D=2026-11-25/h=1": "its path has no folder d=",
    "d=2026-11-25/d=2026-11-25/h=1": "its path has more than one folder d=",
    "d=2026/h=1": "its path has d=2026, which is not date",
    "d=2026-11-25/h=1.5": "its path has h=1.5, which is not int",
    "d=/h=1": "its path has d=, which is not date",
    "d=2026-11-25/h=%FF": "its path has a value that is not UTF-8",
}


def test_files_whose_paths_do_not_fit_are_named_and_go_aside(bench):
    good = bench.text("d=2026-11-25/h=1/good.json", '{"id":1}')
    bad = {fault: bench.text(f"{folder}/bad.json", '{"id":2}') for folder, fault in FAULTS.items()}

    for fault, file in bad.items():
        error = bench.failure(bench.batch(0, good, file), reads=True, **JSON, **DAY)
        assert isinstance(error, BadFileError)
        assert f"{file.path}: {fault}" in error.what
    bench.run(bench.batch(0, good, *bad.values()), **JSON, **DAY, bad_records="quarantine")

    assert [row["id"] for row in bench.rows()] == [1]
    aside = DeltaTable(f"{bench.table}_quarantine").to_pyarrow_table().to_pylist()
    assert {row["file"] for row in aside} == {file.path for file in bad.values()}


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": None},
        {"columns": None, "bad_records": "quarantine"},
        {"infers_columns": True},
        {"infers_columns": True, "schema_evolution": "add"},
        {"infers_columns": True, "partition_columns": "infer"},
    ],
)
def test_a_column_of_the_files_with_the_name_of_a_folder_is_refused(bench, changes):
    file = bench.text("d=2026-11-25/h=1/a.json", '{"id":1,"D":"x"}')

    with pytest.raises(InputError, match="partition_columns names, too: d"):
        bench.run(bench.batch(0, file), **{"format": "json", **DAY, **changes})

    assert not Path(bench.table).exists()
    assert not Path(f"{bench.table}_quarantine").exists()


@pytest.mark.parametrize(
    "cut", [(2, 1), *(pytest.param(cut, marks=pytest.mark.loads) for cut in ((3,), (1, 1, 1)))]
)
def test_inferred_folders_are_texts_but_for_hints_however_files_are_cut_into_batches(bench, cut):
    """`07` is no 7, whichever files are in the first batch; and a path may lack what others have."""
    names = {
        "d=2026-11-25/h=07/a.json": 1,
        "d=2026-11-26/h=x/b.json": 2,
        "d=2026-11-26/h=7/%72=1/c.json": 3,
    }
    files = [bench.text(name, f'{{"id":{number}}}') for name, number in names.items()]
    hints: dict[str, Any] = {"infers_columns": True, "schema_evolution": "add", "schema_hints": {"d": "date"}}

    ends = [sum(cut[: place + 1]) for place in range(len(cut))]
    batches = [
        bench.batch(seq, *files[end - size : end])
        for seq, (end, size) in enumerate(zip(ends, cut, strict=True))
    ]
    plan = {"format": "json", "partition_columns": "infer", "missing_columns": "null", **hints}
    bench.run_plan(*batches, **plan)

    first, second = dt.date(2026, 11, 25), dt.date(2026, 11, 26)
    assert bench.rows() == [
        {"id": "1", "d": first, "h": "07", "r": None},
        {"id": "2", "d": second, "h": "x", "r": None},
        {"id": "3", "d": second, "h": "7", "r": "1"},
    ]


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 2])
def test_hinted_folders_come_and_go_from_batch_to_batch(bench, cut):
    names = ["a.csv", "d=2026-11-25/b.csv", "c.csv", "d=2026-11-26/d.csv"]
    files = [bench.text(name, f"id\n{number}\n") for number, name in enumerate(names)]
    hints = {"infers_columns": True, "schema_evolution": "add", "schema_hints": {"d": "date"}}
    plan = {"format": "csv", "options": {"header": "true"}, "partition_columns": "infer", **hints}
    batches = [bench.batch(seq, *files[seq * cut : (seq + 1) * cut]) for seq in range(4 // cut)]

    bench.run_plan(*batches, **plan, missing_columns="null")

    days = [None, dt.date(2026, 11, 25), None, dt.date(2026, 11, 26)]
    assert [(row["id"], row["d"]) for row in bench.rows()] == [(str(i), day) for i, day in enumerate(days)]


def test_inferred_folders_that_a_path_lacks_or_that_differ_in_case_are_refused(bench):
    files = [bench.text("d=1/a.json", '{"id":1}'), bench.text("b.json", '{"id":2}')]
    plan = {**JSON, "partition_columns": "infer"}

    lacks = bench.failure(bench.batch(0, *files), reads=True, **plan)
    differs = bench.failure(bench.batch(0, files[0], bench.text("D=1/c.json", '{"id":3}')), **plan)

    assert isinstance(lacks, BadFileError)
    assert "b.json: its path has no folder d=" in lacks.what
    assert isinstance(differs, InputError)
    assert "differ in letter case alone: d, D" in differs.what


@pytest.mark.parametrize("changes", [{}, {"infers_columns": True, "schema_evolution": "add"}])
def test_a_table_that_is_partitioned_by_them_grows_batch_by_batch(bench, changes):
    """What the table has and no file has is NULL, but not these."""
    plan: dict[str, Any] = {"format": "json", **DAY, "partition_by": ("d",), **changes}
    first = bench.batch(0, bench.text("d=2026-11-25/h=1/a.json", '{"id":1,"n":2}'))
    second = bench.batch(1, bench.text("d=2026-11-26/h=2/b.json", '{"id":3}'))

    bench.run_plan(first, second, **plan, sql="SELECT id, n, d, h FROM @data")

    rows = json.loads(json.dumps(bench.rows(), default=str))
    kind = str if changes else int
    assert rows == [
        {"id": kind(1), "n": kind(2), "d": "2026-11-25", "h": 1},
        {"id": kind(3), "n": None, "d": "2026-11-26", "h": 2},
    ]
