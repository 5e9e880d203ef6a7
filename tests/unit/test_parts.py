"""What a user can write has all of its parts."""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib import import_module
from typing import get_args

from airflow_provider_scope import specs
from airflow_provider_scope.hooks.databases import DRIVERS
from airflow_provider_scope.sources import PARTS, AnySource
from airflow_provider_scope.spark import databases
from airflow_provider_scope.spark.writes import WRITES
from airflow_provider_scope.specs.write import WriteSpec
from tests.docs.pages import DOCS, code, rows, section

SOURCES = {*get_args(AnySource)}


def test_every_source_is_exported_and_has_its_parts() -> None:
    exported = {getattr(specs, name) for name in specs.__all__}

    assert SOURCES - exported == set()
    assert {*PARTS} == SOURCES
    for spec, parts in PARTS.items():
        assert parts.field in {item.name for item in fields(spec) if item.default is MISSING}
        assert callable(import_module(f"airflow_provider_scope.sources.{parts.facts}").of_run)
        reader = import_module(f"airflow_provider_scope.spark.{parts.reader}")
        assert callable(reader.read)
        assert callable(reader.commit)


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
