"""SCOPE types and their Spark counterparts."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import parse_type, scope_type


@pytest.mark.parametrize(
    ("scope", "spark", "nullable"),
    [
        ("string", "string", True),
        ("bool", "boolean", False),
        ("bool?", "boolean", True),
        ("sbyte", "tinyint", False),
        ("short", "smallint", False),
        ("int", "int", False),
        ("int ?", "int", True),
        ("long", "bigint", False),
        ("byte", "smallint", False),
        ("ushort", "int", False),
        ("uint", "bigint", False),
        ("ulong", "decimal(20,0)", False),
        ("float", "float", False),
        ("double?", "double", True),
        ("decimal", "decimal(38,18)", False),
        ("DateTime", "timestamp", False),
        ("Guid", "string", False),
        ("byte[]", "binary", True),
        ("SQL.ARRAY<int?>", "array<int>", True),
        ("SqlMap<string, SqlArray<long>>", "map<string,array<bigint>>", True),
    ],
)
def test_a_scope_type_has_a_spark_type_and_a_nullability(scope, spark, nullable):
    assert (parse_type(scope).spark, parse_type(scope).nullable) == (spark, nullable)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "string?",
        "byte[]?",
        "int??",
        "Int",
        "int[]",
        "char",
        "TimeSpan",
        "SQL.MAP<int>",
        "int x",
        "int;",
    ],
)
def test_other_text_is_not_a_type(text):
    with pytest.raises(InputError, match="is not a SCOPE type"):
        parse_type(text)


@pytest.mark.parametrize(
    ("spark", "scope"),
    [
        ("bigint", "long?"),
        ("string", "string"),
        ("binary", "byte[]"),
        ("decimal(10,2)", "decimal?"),
        ("timestamp", "DateTime?"),
        ("decimal(10, 2)", "decimal?"),
        ("Numeric(5)", "decimal?"),
        ("INTEGER", "int?"),
        ("long", "long?"),
        ("byte", "sbyte?"),
        ("timestamp_ltz", "DateTime?"),
        ("varchar(5)", "string"),
    ],
)
def test_a_spark_type_has_a_scope_type(spark, scope):
    assert scope_type(spark) == scope


def test_a_spark_type_without_a_scope_type_is_refused():
    with pytest.raises(InputError, match=r"'interval' has no SCOPE type"):
        scope_type("interval")
