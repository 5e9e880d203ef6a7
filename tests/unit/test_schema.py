"""Fit the SELECT's columns to the table's."""

from __future__ import annotations

import pytest

from airflow_provider_scope.delta.schema import Column, Fit, fit, keeps_values
from airflow_provider_scope.exceptions import SchemaMismatchError

AT = "file:///delta/t"
TABLE: list[Column] = [("id", "bigint"), ("Name", "string"), ("price", "decimal(10,2)")]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        pytest.param(
            [("id", "bigint"), ("Name", "string"), ("price", "decimal(10,2)")],
            (Fit("id", "id", None), Fit("Name", "Name", None), Fit("price", "price", None)),
            id="the same",
        ),
        pytest.param(
            [("price", "decimal(10,2)"), ("id", "bigint"), ("Name", "string")],
            (Fit("id", "id", None), Fit("Name", "Name", None), Fit("price", "price", None)),
            id="in another order",
        ),
        pytest.param(
            [("ID", "bigint"), ("name", "string"), ("Price", "decimal(10,2)")],
            (Fit("id", "ID", None), Fit("Name", "name", None), Fit("price", "Price", None)),
            id="in another case",
        ),
        pytest.param(
            [("id", "int"), ("Name", "void"), ("price", "decimal(5,1)")],
            (
                Fit("id", "id", "bigint"),
                Fit("Name", "Name", "string"),
                Fit("price", "price", "decimal(10,2)"),
            ),
            id="in narrower types",
        ),
    ],
)
def test_columns_are_matched_by_name_in_the_tables_order(
    select: list[Column], expected: tuple[Fit, ...]
) -> None:
    assert fit(select, TABLE, AT) == expected


@pytest.mark.parametrize(
    ("select", "problems"),
    [
        pytest.param(
            [("id", "bigint"), ("Name", "string"), ("price", "decimal(10,2)"), ("extra", "int")],
            "extra int is not a column of the table",
            id="extra",
        ),
        pytest.param(
            [("id", "bigint"), ("Name", "string")],
            "price decimal(10,2) is missing in the SELECT",
            id="missing",
        ),
        pytest.param(
            [("id", "string"), ("Name", "string"), ("price", "decimal(10,2)")],
            "id is string in the SELECT and bigint in the table",
            id="another type",
        ),
        pytest.param(
            [("id", "bigint"), ("Name", "string"), ("price", "double")],
            "price is double in the SELECT and decimal(10,2) in the table",
            id="lossy",
        ),
        pytest.param(
            [("id", "bigint"), ("ID", "bigint"), ("Name", "string"), ("price", "decimal(10,2)")],
            "ID is selected twice",
            id="twice",
        ),
        pytest.param(
            [("a", "int"), ("A", "int"), ("id", "double"), ("Name", "string")],
            "A is selected twice; a int is not a column of the table; A int is not a column of the table; "
            "id is double in the SELECT and bigint in the table; "
            "price decimal(10,2) is missing in the SELECT",
            id="all at once",
        ),
        pytest.param(
            [],
            "id bigint is missing in the SELECT; Name string is missing in the SELECT; "
            "price decimal(10,2) is missing in the SELECT",
            id="nothing selected",
        ),
    ],
)
def test_one_error_names_every_column_that_does_not_fit(select: list[Column], problems: str) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        fit(select, TABLE, AT)

    assert caught.value.what == f"The SELECT does not fit the table file:///delta/t: {problems}."
    assert "no row of this batch was written, and the batch stays logged" in caught.value.kept


@pytest.mark.parametrize(
    ("select", "do"),
    [
        ([("id", "bigint"), ("b", "int")], 'new columns with TableSpec(schema_evolution="add")'),
        ([("id", "decimal(20,0)")], 'wider types with TableSpec(schema_evolution="widen")'),
        (
            [("id", "decimal(20,0)"), ("b", "int")],
            'new columns and wider types with TableSpec(schema_evolution="widen")',
        ),
        ([("id", "string")], None),
        ([], None),
    ],
)
def test_the_way_on_names_the_setting_that_would_help(select: list[Column], do: str | None) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        fit(select, [("id", "bigint")], AT)

    assert caught.value.do == (
        "change the SELECT (name each column; CAST where a conversion is meant), or the table"
        + (f"; or let the table take {do}" if do else "")
        + "; the next run loads the batch with the correction"
    )


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("string", "string"),
        ("void", "array<string>"),
        ("struct<a:int,b:string>", "struct<a:int,b:string>"),
        ("tinyint", "smallint"),
        ("tinyint", "double"),
        ("smallint", "float"),
        ("int", "bigint"),
        ("int", "double"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
        ("tinyint", "decimal(3,0)"),
        ("int", "decimal(12,2)"),
        ("bigint", "decimal(19,0)"),
        ("decimal(5,2)", "decimal(7,2)"),
        ("decimal(5,2)", "decimal(6,3)"),
    ],
)
def test_a_conversion_that_keeps_every_value_is_allowed(source: str, target: str) -> None:
    assert keeps_values(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("string", "int"),
        ("int", "string"),
        ("bigint", "int"),
        ("bigint", "double"),
        ("int", "float"),
        ("double", "float"),
        ("double", "decimal(38,10)"),
        ("boolean", "int"),
        ("date", "timestamp"),
        ("timestamp", "date"),
        ("timestamp_ntz", "date"),
        ("timestamp_ntz", "timestamp"),
        ("int", "decimal(10,1)"),
        ("bigint", "decimal(18,0)"),
        ("decimal(5,2)", "decimal(5,3)"),
        ("decimal(5,2)", "decimal(7,1)"),
        ("decimal(5,0)", "int"),
        ("decimal(5,0)", "bigint"),
        ("struct<a:int>", "struct<a:bigint>"),
        ("array<int>", "array<bigint>"),
        ("int", "void"),
    ],
)
def test_a_conversion_that_could_change_a_value_is_not(source: str, target: str) -> None:
    assert not keeps_values(source, target)
