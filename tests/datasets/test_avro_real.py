"""Avro files that Java and others wrote: the sources of fastavro have some, which pip fetches once."""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from tests.datasets import lab
from tests.datasets.generator import Case, File
from tests.support import pypi

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.vega]

OF_ONE_SCHEMA = "test-*.avro"
SNAPPY = {"snappy.avro", "test-snappy.avro", "weather-snappy.avro"}
"""Packed so that fastavro cannot read them without another package."""


def install() -> Path:
    """Return the folder of the files."""
    return pypi.fetch("fastavro", version("fastavro"), kind="source") / "tests" / "avro-files"


def read(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Read a file with fastavro: its schema, and its records."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        return dict(reader.writer_schema) if isinstance(reader.writer_schema, dict) else {}, list(reader)


def plain(value: Any) -> Any:
    """Return a value as Arrow has it."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return float("%.6g" % value) if math.isfinite(value) else str(value)  # noqa: UP031 - short
    return str(value) if type(value).__name__ == "UUID" else value


def test_every_record_of_a_real_file_is_read_or_the_file_is_refused(spark, tmp_path):
    loaded, refused = [], []
    for path in sorted(install().glob("*.avro")):
        source = lab.Lab(
            spark, tmp_path, Case(None, "avro", [], [File(path.name, path.read_bytes(), [])], declared=False)
        )
        schema, records = ({}, []) if path.name in SNAPPY else read(path)
        try:
            rows = source.read().to_pylist()
        except lab.REFUSALS:
            # Of records without fields, of no records at all, or of a record that holds itself.
            is_of_records = schema.get("type") == "record" and schema["fields"]
            assert not is_of_records or path.name == "recursive.avro", path.name
            refused.append(path.name)
        else:
            assert path.name in SNAPPY or plain(rows) == plain(records), path.name
            loaded.append(path.name)
    assert len(loaded) >= 20
    assert {"no-fields.avro", "recursive.avro", "null.avro"} <= {*refused}


def test_real_files_of_one_schema_and_several_codecs_are_one_batch(spark, tmp_path):
    files = []
    for path in sorted(install().glob(OF_ONE_SCHEMA)):
        # What it holds that fastavro cannot unpack is what the file of the same records holds.
        _, records = read(path.with_name("test-null.avro") if path.name in SNAPPY else path)
        rows = [(record["stringField"], record["longField"]) for record in records]
        files.append(File(path.name, path.read_bytes(), rows))
    source = lab.Lab(spark, tmp_path, Case(None, "avro", [], files, declared=False))

    table = source.read()

    assert lab.difference(source.expected(), lab.table_rows(table)) == ""
