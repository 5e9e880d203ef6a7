"""The types of Avro's schemas: names that stand for others, what Spark would change, what is read alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_scope.engines import application
from airflow_provider_scope.spark.files import avro_schema
from airflow_provider_scope.specs import FileSource


def columns_of(*fields: dict[str, Any], **more: Any) -> avro_schema.AvroColumns:
    return avro_schema.columns_of(text(*fields, **more))


def text(*fields: dict[str, Any], **more: Any) -> str:
    schema = {"type": "record", "name": "row", "fields": fields or [{"name": "a", "type": "int"}], **more}
    return avro_schema.canonical(json.dumps(schema))


def decimal(kind: str, precision: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": "decimal", "precision": precision, "scale": 2, **more}


def test_a_name_is_what_its_own_namespace_says():
    inner = {"name": "b.Inner", "type": "record", "fields": [{"name": "e", "type": "E"}]}
    fields = [
        {"name": "e1", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
        {"name": "e2", "type": {"type": "fixed", "name": "E", "namespace": "b", "size": 4}},
        {"name": "in_b", "type": inner},
        {"name": "in_a", "type": ["E", "null"]},
        {"name": "again", "type": {"type": "map", "values": "b.Inner"}},
    ]

    columns = columns_of(*fields, namespace="a")

    assert columns.stored.simpleString() == (
        "struct<e1:string,e2:binary,in_b:struct<e:binary>,in_a:string,again:map<string,struct<e:binary>>>"
    )
    assert columns.reader_schema == ""


def test_decimals_and_texts_that_java_would_change_are_read_by_another_schema():
    fields = [
        {"name": "b", "type": {"type": "array", "items": ["null", decimal("bytes", 9)]}},
        {"name": "f8", "type": decimal("fixed", 9, name="F8", size=8)},
        {"name": "f9", "type": decimal("fixed", 9, name="F9", size=9)},
        {"name": "same", "type": "F9"},
        {"name": "t", "type": {"type": "string", "avro.java.string": "String"}},
    ]

    columns = columns_of(*fields)

    assert columns.stored.simpleString() == (
        "struct<b:array<decimal(9,2)>,f8:decimal(9,2),f9:decimal(9,2),same:decimal(9,2),t:string>"
    )
    assert columns.as_read.simpleString() == (
        "struct<b:array<decimal(38,2)>,f8:decimal(9,2),f9:decimal(21,2),same:decimal(21,2),t:string>"
    )
    assert "avro.java.string" not in columns.reader_schema


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("null", "it holds nothing but null"),
        (["null"], "it holds nothing but null"),
        ([{"type": "int", "logicalType": "date"}, "long"], "Spark has no unions, and it is one of int, long"),
        ({"type": "record", "name": "none", "fields": []}, "it has a record without fields"),
        ({"type": "array", "items": "row"}, "Spark has no types that hold themselves, as row does"),
        (
            {"type": "int", "spark.sql.catalyst.type": "interval month"},
            "a value of Spark's type interval month",
        ),
        (decimal("fixed", 7, name="F", size=3), "a decimal of 7 digits with 2 after the point"),
        (decimal("bytes", 1), "a decimal of 1 digits with 2 after the point"),
        (["null", {"type": "int", "logicalType": "time-millis"}], "a time of day"),
        (
            {"type": "array", "items": {"type": "long", "logicalType": "timestamp-nanos"}},
            "nanoseconds inside",
        ),
    ],
)
def test_a_type_whose_values_spark_would_change_is_unknown_and_the_next_column_is_read(kind, why):
    columns = columns_of({"name": "v", "type": kind}, {"name": "id", "type": "long"})

    assert columns.unknown["v"].startswith(why)
    assert columns.stored.simpleString() == "struct<id:bigint>"


def test_files_whose_schemas_differ_in_what_changes_no_value_are_read_alike():
    documented = {"name": "a", "type": "int", "doc": "an a", "default": 0, "aliases": ["b"]}

    assert text(documented, doc="rows") == text({"type": "int", "name": "a"})
    assert text(documented) != text({"name": "a", "type": ["null", "int"]})


@pytest.mark.parametrize("schema", [None, '"string"', '["null"]', '{"type": "record", "name": "r"}', "{"])
def test_a_schema_that_is_none_of_records_is_an_error(schema):
    with pytest.raises(ValueError, match=r"."):
        avro_schema.canonical(schema)


def test_old_dates_may_be_of_another_calendar_where_spark_2_or_hive_wrote_them():
    of_spark, of_hive = text(name="topLevelRecord"), text()

    assert avro_schema.is_calendar_known(of_spark, ["org.apache.spark.version"])
    assert not avro_schema.is_calendar_known(of_spark, ["avro.codec"])
    assert avro_schema.is_calendar_known(of_hive, ["avro.codec"])
    assert not avro_schema.is_calendar_known(of_hive, ["writer.time.zone"])


@pytest.mark.parametrize(
    ("version", "kind", "packages"),
    [
        ("4.0.1", "avro", ("org.apache.spark:spark-avro_2.13:4.0.1",)),
        ("4.2.0", "avro", ()),
        ("4.0.1", "orc", ()),
    ],
)
def test_the_jar_of_avro_is_asked_for_where_spark_lacks_it(monkeypatch, version, kind, packages):
    monkeypatch.setattr(application, "version", lambda _: version)

    assert application.packages_for(FileSource(roots="/in", format=kind)) == packages
