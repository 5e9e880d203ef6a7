"""How the columns of a SELECT fit a table and change it, and which declared properties it lacks."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope.delta.schema import (
    Array,
    Evolution,
    Field,
    Kind,
    Map,
    Struct,
    evolve,
    keeps_values,
    missing_properties,
    of_delta,
    text,
)
from airflow_provider_scope.exceptions import SchemaMismatchError

AT = "file:///delta/t"


def kind(value: Any) -> Kind:
    """Read a type as it is short to write: a dict is a struct, a list an array, a tuple a map."""
    if isinstance(value, dict):
        return columns(value)
    if isinstance(value, list):
        return Array(kind(value[0]))
    if isinstance(value, tuple):
        return Map(kind(value[0]), kind(value[1]))
    return str(value)


def columns(value: dict[str, Any]) -> Struct:
    """Read columns; a ``!`` at the end of a name is NOT NULL."""
    return Struct(tuple(Field(n.rstrip("!"), kind(v), required=n.endswith("!")) for n, v in value.items()))


def grown(mode: str, table: dict[str, Any], select: dict[str, Any], **more: Any) -> Evolution:
    return evolve(mode, columns(select), columns(table), AT, **more)


def refused(mode: str, table: dict[str, Any], select: dict[str, Any], **more: Any) -> str:
    with pytest.raises(SchemaMismatchError) as caught:
        grown(mode, table, select, **more)
    prefix = "The SELECT does not fit the table file:///delta/t: "
    assert caught.value.what.startswith(prefix)
    assert caught.value.kept == "the table; no row of this batch was written, and the batch stays logged"
    return caught.value.what.removeprefix(prefix)


# ---- a table that stays as it is ----------------------------------------------------------------

TABLE = {"id": "bigint", "Name": "string", "price": "decimal(10,2)"}


@pytest.mark.parametrize(
    "select",
    [
        pytest.param({"price": "decimal(10,2)", "id": "bigint", "Name": "string"}, id="in another order"),
        pytest.param({"ID": "bigint", "name": "string", "Price": "decimal(10,2)"}, id="in another case"),
        pytest.param({"id": "int", "Name": "void", "price": "decimal(5,1)"}, id="in narrower types"),
    ],
)
def test_columns_are_matched_by_name_and_become_the_tables(select: Any) -> None:
    assert grown("fail", TABLE, select) == Evolution(columns(TABLE))


@pytest.mark.parametrize(
    ("select", "problems"),
    [
        pytest.param({**TABLE, "extra": "int"}, "extra int is not a column of the table.", id="extra"),
        pytest.param(
            {**TABLE, "id": "string"}, "id is string in the SELECT and bigint in the table.", id="other"
        ),
        pytest.param({**TABLE, "ID": "bigint"}, "ID is selected twice.", id="twice"),
        pytest.param(
            {"a": "int", "A": "int", "id": "double", "Name": "string"},
            "A is selected twice; a int is not a column of the table; A int is not a column of the table; "
            "id is double in the SELECT and bigint in the table; "
            "price decimal(10,2) is missing in the SELECT.",
            id="all at once",
        ),
    ],
)
def test_a_select_without_the_columns_of_the_table_alone_is_refused(select: Any, problems: str) -> None:
    assert refused("fail", TABLE, select) == problems


def test_the_fields_of_a_struct_are_matched_by_name() -> None:
    table = {"s": {"a": "bigint", "b": {"c": "string", "d": "int"}}}
    assert grown("fail", table, {"s": {"B": {"d": "int", "c": "string"}, "a": "int"}}) == Evolution(
        columns(table)
    )


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"a": "int", "b": "int"}, "struct<a:int,b:int>"),
        ({"b": "int"}, "struct<b:int>"),
        ({"a": "int", "A": "int"}, "struct<a:int,A:int>"),
        ({"a": "string"}, "struct<a:string>"),
    ],
)
def test_the_fields_of_a_struct_have_to_be_those_of_the_table(fields: dict[str, str], kind: str) -> None:
    assert refused("fail", {"s": {"a": "int"}}, {"s": fields}) == (
        f"s is {kind} in the SELECT and struct<a:int> in the table."
    )


# ---- columns ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["add", "widen"])
@pytest.mark.parametrize(
    ("table", "select", "after"),
    [
        pytest.param({"z": "int"}, {"z": "int"}, ({"z": "int"}, (), ()), id="the same"),
        pytest.param(
            {"z": "int", "a": "string"},
            {"m": "date", "A": "string", "b": "int", "Z": "int"},
            ({"z": "int", "a": "string", "m": "date", "b": "int"}, ("m date", "b int"), ()),
            id="new ones go to the end, in the order of the SELECT, whatever the case of the others",
        ),
        pytest.param(
            {"z": "int", "a": "string", "m": "date"},
            {"a": "string", "b": "int"},
            ({"z": "int", "a": "string", "m": "date", "b": "int"}, ("b int",), ("z", "m")),
            id="missing ones stay",
        ),
        pytest.param(
            {"s": {"y": "int", "b": "string"}},
            {"S": {"B": "string", "x": "date", "w": {"k": "int"}}},
            (
                {"s": {"y": "int", "b": "string", "x": "date", "w": {"k": "int"}}},
                ("s.x date", "s.w struct<k:int>"),
                ("s.y",),
            ),
            id="in a struct",
        ),
        pytest.param(
            {"l": [{"y": "int"}], "m": ("string", {"y": "int"})},
            {"l": [{"x": "int", "y": "int"}], "m": ("string", {"q": [{"r": "int"}]})},
            (
                {"l": [{"y": "int", "x": "int"}], "m": ("string", {"y": "int", "q": [{"r": "int"}]})},
                ("l.element.x int", "m.value.q array<struct<r:int>>"),
                ("m.value.y",),
            ),
            id="in arrays and maps",
        ),
        pytest.param(
            {"a.b": "int", "größe": "int"},
            {"größe": "int", "a.b": "int", "数": "int"},
            ({"a.b": "int", "größe": "int", "数": "int"}, ("数 int",), ()),
            id="in other scripts, and with dots",
        ),
        pytest.param(
            {"z": "int", "v": "void"},
            {"z": "void", "v": "string", "n": "void"},
            ({"z": "int", "v": "string", "n": "void"}, ("v string", "n void"), ()),
            id="a column of NULLs without a type gets its type when it has one",
        ),
        pytest.param(
            {"s": {"a": "int"}, "l": ["string"]},
            {"s": "void", "l": ["void"]},
            ({"s": {"a": "int"}, "l": ["string"]}, (), ()),
            id="NULLs without a type fit everywhere",
        ),
    ],
)
def test_columns_that_come_and_go(mode: str, table: Any, select: Any, after: Any) -> None:
    columns_after, added, missing = after
    assert grown(mode, table, select) == Evolution(columns(columns_after), added, (), missing)


def test_a_column_that_must_not_be_null_stays_so() -> None:
    after = grown("add", {"id!": "int", "s": {"k!": "int"}}, {"ID": "int", "s": {"k": "int"}, "n": "int"})

    assert after.columns == columns({"id!": "int", "s": {"k!": "int"}, "n": "int"})


@pytest.mark.parametrize(
    ("table", "select", "problems"),
    [
        pytest.param(
            {"id!": "int", "s": {"k!": "int"}},
            {"s": {"x": "int"}},
            "id int is NOT NULL in the table and is missing in the SELECT; "
            "s.k int is NOT NULL in the table and is missing in the SELECT.",
            id="missing and NOT NULL",
        ),
        pytest.param(
            {"id": "int"},
            {"id": "int", "new": "int", "NEW": "string"},
            "NEW is selected twice.",
            id="a new one twice",
        ),
        pytest.param(
            {"id": "int", "s": {"a": "int"}},
            {"ID": "int", "id": "int", "s": {"a": "int", "A": "int"}, "t": [{"x": "int", "X": "int"}]},
            "id is selected twice; s.A is selected twice; t.element.X is selected twice.",
            id="twice, and in structs",
        ),
        pytest.param(
            {"id": "int"},
            {"id": "int", "n": {"a": "void"}, "l": [["void"]]},
            "n.a has no type: it is NULL in all rows; l.element.element has no type: it is NULL in all rows.",
            id="new, and NULL without a type inside of another one",
        ),
        pytest.param(
            {"id": "int", "s": {"a": "int"}, "l": ["int"]},
            {"id": {"a": "int"}, "s": ["int"], "l": ("string", "int")},
            "id is struct<a:int> in the SELECT and int in the table; "
            "s is array<int> in the SELECT and struct<a:int> in the table; "
            "l is map<string,int> in the SELECT and array<int> in the table.",
            id="of another shape",
        ),
        pytest.param(
            {"m": ("int", "int")},
            {"m": ("bigint", "int")},
            "m.key is bigint in the SELECT and int in the table.",
            id="the keys of a map",
        ),
        pytest.param(
            {"s": {"a": "int"}, "b": "date"},
            {"s": {"a": "string"}, "b": "timestamp", "c": "int"},
            "s.a is string in the SELECT and int in the table; "
            "b is timestamp in the SELECT and date in the table.",
            id="of another type",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["add", "widen"])
def test_what_does_not_fit_is_named_all_at_once(mode: str, table: Any, select: Any, problems: str) -> None:
    assert refused(mode, table, select) == problems


# ---- types --------------------------------------------------------------------------------------

WIDENED = [
    ("tinyint", "smallint", "smallint"),
    ("tinyint", "bigint", "bigint"),
    ("smallint", "int", "int"),
    ("int", "bigint", "bigint"),
    ("tinyint", "double", "double"),
    ("int", "double", "double"),
    ("float", "double", "double"),
    # Neither type holds the other's values, and a third one holds both.
    ("int", "float", "double"),
    ("smallint", "float", "double"),
    ("float", "int", "double"),
    ("date", "timestamp_ntz", "timestamp_ntz"),
    ("decimal(5,2)", "decimal(7,2)", "decimal(7,2)"),
    ("decimal(5,2)", "decimal(6,3)", "decimal(6,3)"),
    ("decimal(5,2)", "decimal(5,3)", "decimal(6,3)"),
    ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
    ("decimal(5,2)", "int", "decimal(12,2)"),
    ("decimal(5,2)", "bigint", "decimal(21,2)"),
    # Delta makes a decimal of an int from 10 digits on, and of a bigint from 20 on.
    ("tinyint", "decimal(4,1)", "decimal(11,1)"),
    ("int", "decimal(12,2)", "decimal(12,2)"),
    ("int", "decimal(5,0)", "decimal(10,0)"),
    ("bigint", "decimal(20,0)", "decimal(20,0)"),
    ("bigint", "decimal(19,0)", "decimal(20,0)"),
    ("bigint", "decimal(5,2)", "decimal(22,2)"),
]


@pytest.mark.parametrize(("table", "select", "after"), WIDENED)
def test_a_type_is_widened_to_the_narrowest_one_that_holds_both(table: str, select: str, after: str) -> None:
    change = f"v is widened from {table} to {after}"
    nested = f"s.l.element.v is widened from {table} to {after}"

    assert grown("widen", {"v": table}, {"V": select}) == Evolution(columns({"v": after}), (), (change,), ())
    assert grown("widen", {"s": {"l": [{"v": table}]}}, {"s": {"l": [{"v": select}]}}) == Evolution(
        columns({"s": {"l": [{"v": after}]}}), (), (nested,), ()
    )


@pytest.mark.parametrize(("table", "select", "after"), WIDENED)
def test_a_type_is_not_widened_unless_that_is_asked_for(table: str, select: str, after: str) -> None:
    assert refused("add", {"v": table}, {"v": select}) == (
        f"v is {select} in the SELECT and {table} in the table."
    )


@pytest.mark.parametrize("mode", ["add", "widen"])
@pytest.mark.parametrize(
    ("table", "select"),
    [
        ("bigint", "int"),
        ("bigint", "tinyint"),
        ("double", "int"),
        ("double", "float"),
        ("float", "smallint"),
        ("decimal(12,2)", "int"),
        ("decimal(7,2)", "decimal(5,2)"),
        ("timestamp_ntz", "date"),
        ("int", "void"),
    ],
)
def test_a_narrower_type_becomes_the_tables(mode: str, table: str, select: str) -> None:
    assert grown(mode, {"v": table, "s": {"v": table}}, {"v": select, "s": {"v": select}}) == Evolution(
        columns({"v": table, "s": {"v": table}}), (), (), ()
    )


@pytest.mark.parametrize(
    ("table", "select"),
    [
        ("bigint", "double"),
        ("bigint", "float"),
        ("double", "bigint"),
        ("float", "bigint"),
        ("float", "decimal(5,2)"),
        ("double", "decimal(5,2)"),
        ("decimal(5,2)", "double"),
        ("decimal(5,2)", "string"),
        ("decimal(38,0)", "decimal(38,1)"),
        ("decimal(38,20)", "bigint"),
        ("string", "int"),
        ("int", "string"),
        ("boolean", "int"),
        ("int", "boolean"),
        ("date", "timestamp"),
        ("timestamp", "date"),
        ("timestamp", "timestamp_ntz"),
        ("timestamp_ntz", "timestamp"),
        ("string", "binary"),
    ],
)
def test_a_type_that_cannot_hold_both_is_refused_with_both_named(table: str, select: str) -> None:
    assert refused("widen", {"v": table}, {"v": select}) == (
        f"v is {select} in the SELECT and {table} in the table."
    )


# ---- partitions ---------------------------------------------------------------------------------


def test_a_partition_column_stays_as_it_is() -> None:
    table = {"v": "int", "P": "int"}

    assert refused("widen", table, {"v": "bigint", "p": "bigint"}, partitions=("P",)) == (
        "P is bigint in the SELECT and int in the table."
    )
    assert refused("widen", table, {"v": "int"}, partitions=("P",)) == (
        "P int partitions the table and is missing in the SELECT."
    )
    assert grown("widen", table, {"v": "bigint", "p": "smallint"}, partitions=("P",)) == Evolution(
        columns({"v": "bigint", "P": "int"}), (), ("v is widened from int to bigint",), ()
    )


# ---- declared columns ---------------------------------------------------------------------------


def declared(**kinds: Any) -> dict[str, Any]:
    return {"declared": columns(kinds)}


def test_declared_columns_have_their_types_and_further_ones_are_added() -> None:
    assert grown("add", {"b": "bigint"}, {"b": "int", "a": "int"}, **declared(b="bigint")) == Evolution(
        columns({"b": "bigint", "a": "int"}), ("a int",), (), ()
    )


def test_a_declared_column_that_the_table_lacks_is_added_with_the_declared_type() -> None:
    assert grown("add", {"b": "int"}, {"B": "int", "a": "int"}, **declared(a="bigint", b="int")) == Evolution(
        columns({"b": "int", "a": "bigint"}), ("a bigint",), (), ()
    )


def test_a_declared_type_that_is_wider_widens_the_table() -> None:
    assert grown("widen", {"b": "int"}, {"b": "int"}, **declared(b="bigint")) == Evolution(
        columns({"b": "bigint"}), (), ("b is widened from int to bigint",), ()
    )
    assert refused("add", {"b": "int"}, {"b": "int"}, **declared(b="bigint")) == (
        "b is bigint as declared and int in the table."
    )


@pytest.mark.parametrize("mode", ["add", "widen"])
def test_a_declared_type_is_not_widened(mode: str) -> None:
    assert refused(mode, {"b": "int"}, {"b": "bigint"}, **declared(b="int")) == (
        "b is bigint in the SELECT and declared as int."
    )
    assert refused(mode, {"b": "bigint"}, {"b": "int"}, **declared(b="int")) == (
        "b is int as declared and bigint in the table."
    )


def test_a_declared_column_must_be_in_the_select() -> None:
    assert refused("add", {"b": "int", "c": "int"}, {"a": "int"}, **declared(b="int")) == (
        "b int is declared and missing in the SELECT."
    )


def test_declared_columns_come_first_in_a_new_table() -> None:
    evolution = evolve(
        "add", columns({"a": "int", "B": "int", "c": "date"}), None, AT, **declared(b="bigint", a="int")
    )

    assert evolution.columns == columns({"b": "bigint", "a": "int", "c": "date"})


def test_a_new_table_has_the_columns_of_the_select() -> None:
    assert evolve("widen", columns({"z": "int", "a": "date"}), None, AT).columns == columns(
        {"z": "int", "a": "date"}
    )


# ---- words --------------------------------------------------------------------------------------


def test_the_types_of_deltas_log_are_told_as_spark_writes_them() -> None:
    def field(name: str, of: Any, **metadata: Any) -> dict[str, Any]:
        return {"name": name, "type": of, "nullable": False, "metadata": metadata}

    inner = {"type": "struct", "fields": [field("b c", "decimal(5,2)")]}
    nested = {"type": "map", "keyType": "long", "valueType": inner, "valueContainsNull": True}
    array = {"type": "array", "elementType": nested, "containsNull": True}
    read = of_delta(
        {"type": "struct", "fields": [field("a", array), field("n", "integer", CURRENT_DEFAULT="1")]}
    )

    assert read == Struct(
        (
            Field("a", Array(Map("bigint", columns({"b c!": "decimal(5,2)"}))), required=True),
            Field("n", "int", required=False),  # the table computes it
        )
    )
    assert text(read) == "struct<a:array<map<bigint,struct<b c:decimal(5,2)>>>,n:int>"


@pytest.mark.parametrize(
    ("table", "select", "summary"),
    [
        ({"a": "int"}, {"a": "int"}, ""),
        ({"a": "int"}, {"a": "int", "b": "int", "c": "date"}, "the table gets b int, c date"),
        ({"a": "int"}, {"a": "bigint"}, "a is widened from int to bigint"),
        ({"a from b": "int"}, {"a from b": "bigint"}, "a from b is widened from int to bigint"),
        ({"a": "int", "b": "int"}, {"a": "int"}, "not in the SELECT: b"),
        (
            {"a": "int", "b": "int"},
            {"a": "bigint", "c": "int"},
            "the table gets c int; a is widened from int to bigint; not in the SELECT: b",
        ),
    ],
)
def test_a_change_is_told_in_a_line(table: Any, select: Any, summary: str) -> None:
    assert grown("widen", table, select).summary() == summary


@pytest.mark.parametrize(
    ("mode", "select", "do"),
    [
        ("fail", {"a": "int", "b": "int"}, 'new columns with TableSpec(schema_evolution="add")'),
        ("fail", {"a": "decimal(20,0)"}, 'wider types with TableSpec(schema_evolution="widen")'),
        (
            "fail",
            {"a": "bigint", "b": "int"},
            'new columns and wider types with TableSpec(schema_evolution="widen")',
        ),
        ("fail", {"a": "string"}, None),
        ("fail", {}, 'rows without some of its columns with TableSpec(schema_evolution="add")'),
        ("add", {"a": "bigint"}, 'wider types with TableSpec(schema_evolution="widen")'),
        ("add", {"a": "string"}, None),
        ("widen", {"a": "string"}, None),
    ],
)
def test_the_way_on_names_the_setting_that_would_help(mode: str, select: Any, do: str | None) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        grown(mode, {"a": "int"}, select)

    assert caught.value.do == (
        "change the SELECT (name each column; CAST where a conversion is meant), or the table"
        + (f"; or let the table take {do}" if do else "")
        + "; the next run loads the batch with the correction"
    )


# ---- conversions --------------------------------------------------------------------------------


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


# ---- declared properties ------------------------------------------------------------------------

LEGACY = {"minReaderVersion": 1, "minWriterVersion": 2}
FEATURES = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "appendOnly", "domainMetadata"],
}


@pytest.mark.parametrize(
    ("properties", "configuration", "protocol", "missing"),
    [
        ({"team": "me"}, {}, LEGACY, ["team"]),
        ({"team": "me"}, {"team": "you"}, LEGACY, ["team"]),
        ({"team": "me"}, {"Team": "me"}, LEGACY, []),
        ({"delta.checkpointInterval": 5}, {"delta.checkpointInterval": "5"}, LEGACY, []),
        # These become a part of the protocol, and no properties.
        ({"delta.feature.deletionVectors": "supported"}, {}, FEATURES, []),
        ({"delta.feature.DELETIONVECTORS": "enabled"}, {}, FEATURES, []),
        ({"delta.feature.domainMetadata": "supported"}, {}, FEATURES, []),
        ({"delta.feature.deletionVectors": "supported"}, {}, LEGACY, ["delta.feature.deletionVectors"]),
        ({"delta.feature.rowTracking": "supported"}, {}, FEATURES, ["delta.feature.rowTracking"]),
        # Delta says what is wrong with it.
        ({"delta.feature.deletionVectors": "maybe"}, {}, FEATURES, ["delta.feature.deletionVectors"]),
        # What came before features is a part of each version.
        ({"delta.feature.appendOnly": "supported"}, {}, LEGACY, []),
        ({"delta.feature.changeDataFeed": "supported"}, {}, LEGACY, ["delta.feature.changeDataFeed"]),
        ({"delta.feature.changeDataFeed": "supported"}, {}, {**LEGACY, "minWriterVersion": 4}, []),
        ({"delta.feature.changeDataFeed": "supported"}, {}, FEATURES, ["delta.feature.changeDataFeed"]),
        ({"delta.minReaderVersion": "1", "delta.minWriterVersion": "2"}, {}, LEGACY, []),
        ({"delta.minReaderVersion": "1", "delta.MinWriterVersion": 5}, {}, FEATURES, []),
        ({"delta.minWriterVersion": "5"}, {}, LEGACY, ["delta.minWriterVersion"]),
        ({"delta.minReaderVersion": "2"}, {}, LEGACY, ["delta.minReaderVersion"]),
        ({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, {}, LEGACY, []),
        ({"delta.minWriterVersion": "8"}, {}, FEATURES, ["delta.minWriterVersion"]),
        ({"delta.minWriterVersion": "new"}, {}, LEGACY, ["delta.minWriterVersion"]),
        # It is for the making of a table, and is not kept.
        ({"delta.ignoreProtocolDefaults": "true"}, {}, LEGACY, []),
    ],
)
def test_a_property_is_missing_until_the_table_has_it_in_its_own_form(
    properties: dict[str, Any], configuration: dict[str, str], protocol: dict[str, Any], missing: list[str]
) -> None:
    assert list(missing_properties(properties, configuration, protocol)) == missing
