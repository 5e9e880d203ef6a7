"""The page about the SELECT has the columns, conversions and outcomes of the code."""

from __future__ import annotations

from typing import Any

from airflow_provider_scope.delta import schema
from airflow_provider_scope.delta.schema import Array, Field, Map, Struct, evolve
from airflow_provider_scope.exceptions import SchemaMismatchError
from airflow_provider_scope.sources.files.spec import VIRTUAL_COLUMNS
from tests.docs.pages import DOCS, code, rows, section

PAGE = DOCS / "sql.md"


def test_the_virtual_columns_are_documented_with_their_types():
    table = rows(section(PAGE, "## Virtual columns"))

    assert {code(row[0])[0]: row[1] for row in table} == VIRTUAL_COLUMNS


def test_the_conversions_are_documented():
    table = rows(section(PAGE, "## Columns and types"))

    assert {code(row[0])[0]: tuple(code(row[1])) for row in table} == schema._WIDER


def grown(mode: str, table: Struct, select: Struct, **more: Any) -> str:
    """Say in the word of the page what becomes of a SELECT."""
    try:
        after = evolve(mode, select, table, "t", **more)
    except SchemaMismatchError:
        return "refused"
    words = {"added": after.added, "widened": after.widened, "NULL": after.missing}
    return " and ".join(word for word, found in words.items() if found) or "fits"


def columns(**kinds: Any) -> Struct:
    return Struct(tuple(Field(name, kind) for name, kind in kinds.items()))


A = columns(a="int", b="int")
GROWTH: dict[str, tuple[Struct, Struct, dict[str, Any]]] = {
    "the table's columns, or fields of a struct, in another order, or in another case": (
        columns(s=A, b="int"),
        columns(B="int", S=columns(b="int", A="int")),
        {},
    ),
    "a column more": (A, columns(a="int", b="int", c="int"), {}),
    "a column less": (A, columns(b="int"), {}),
    "a column less, which is NOT NULL": (
        Struct((Field("a", "int", required=True), Field("b", "int"))),
        columns(b="int"),
        {},
    ),
    "a column less, which is declared in `TableSpec.columns`": (
        A,
        columns(b="int"),
        {"declared": columns(a="int")},
    ),
    "a column less, which partitions the table": (A, columns(b="int"), {"partitions": ("a",)}),
    "a struct with a field more": (columns(s=columns(a="int")), columns(s=A), {}),
    "a struct with a field less": (columns(s=A), columns(s=columns(a="int")), {}),
    "a type that [can be converted](#columns-and-types) to the table's": (
        columns(a="bigint"),
        columns(a="int"),
        {},
    ),
    "the same inside of a struct, an array or a map's value": (
        columns(s=columns(a="bigint"), l=Array("bigint"), m=Map("string", "bigint")),
        columns(s=columns(a="int"), l=Array("int"), m=Map("string", "int")),
        {},
    ),
    "a type to which Delta can widen the table's": (columns(a="int"), columns(a="bigint"), {}),
    "any other type": (columns(a="int"), columns(a="string"), {}),
    "another type for a column that is declared": (
        A,
        columns(a="bigint", b="int"),
        {"declared": columns(a="int")},
    ),
    "another type for a column that partitions the table": (
        A,
        columns(a="bigint", b="int"),
        {"partitions": ("a",)},
    ),
}


def test_what_each_setting_does_when_the_columns_change_is_documented():
    table = [row for row in rows(section(PAGE, "## When the columns change")) if len(row) == 4]

    assert {row[0]: row[1:] for row in table} == {
        case: [grown(mode, there, select, **more) for mode in ("fail", "add", "widen")]
        for case, (there, select, more) in GROWTH.items()
    }


def test_the_types_that_delta_widens_are_documented():
    table = [row for row in rows(section(PAGE, "## When the columns change")) if len(row) == 2]

    assert {code(row[0])[0]: tuple(code(row[1])) for row in table} == schema._WIDENS
