"""What a user can write has all of its parts."""

from __future__ import annotations

from typing import get_args

from airflow_provider_scope import specs, values
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.hooks.databases import DRIVERS
from airflow_provider_scope.sources import BY_FIELD, AnySource
from airflow_provider_scope.spark import app, databases
from airflow_provider_scope.spark.writes import WRITES
from airflow_provider_scope.specs.write import WriteSpec
from tests.docs.pages import DOCS, code, rows, section

SOURCES = {*get_args(AnySource)}


def test_every_source_is_exported_and_recognized_and_can_be_assembled() -> None:
    exported = {getattr(specs, name) for name in specs.__all__}

    assert SOURCES - exported == set()
    assert SOURCES - {kind for _, kind in BY_FIELD} == {specs.FileSource}
    assert {*assembly._SOURCES} == SOURCES


def test_every_slice_of_a_source_has_a_reader() -> None:
    # Tests add kinds of their own.
    kinds = {kind for kind, cls in values.KINDS.items() if cls.__module__ == values.__name__}

    assert {*app._READERS} == {values.FileSlice.kind, *kinds} - {values.RowSlice.kind}


def test_every_write_is_exported_and_has_a_function() -> None:
    writes = {*get_args(WriteSpec)}

    assert writes - {getattr(specs, name) for name in specs.__all__} == set()
    assert {*WRITES} - {"append"} == {cls.__name__.lower() for cls in writes} - {"replace"}


def test_every_database_has_a_driver_a_reader_and_a_row_on_its_page() -> None:
    table = rows(section(DOCS / "databases.md", "## Connections"))

    assert {*databases._ROWS} == {*DRIVERS, "jdbc"}
    assert {package for _, package in DRIVERS.values()} == {
        name for row in table[:-1] for name in code(row[2])
    }
