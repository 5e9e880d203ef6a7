"""Columns as they are declared: every form gives one mapping, in its order."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_scope import validation
from airflow_provider_scope.columns import check_order, columns_from, is_late, split_columns
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import FileSource, TableSpec
from tests.support.values import XCOM

FORMS = "a mapping of name to type, a list of [name, type] pairs, or text such as 'id bigint, name string'"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id bigint", [("id", "bigint")]),
        ("id bigint, name string", [("id", "bigint"), ("name", "string")]),
        ("\n  id   bigint\n, name\tstring ", [("id", "bigint"), ("name", "string")]),
        ("id: bigint, name :string, b : int", [("id", "bigint"), ("name", "string"), ("b", "int")]),
        ("price decimal(10,2), n int", [("price", "decimal(10,2)"), ("n", "int")]),
        ("s struct<a:int,b:string>, n int", [("s", "struct<a:int,b:string>"), ("n", "int")]),
        (
            "m map<string, array<decimal(10, 2)>>, n int",
            [("m", "map<string, array<decimal(10, 2)>>"), ("n", "int")],
        ),
        ("`a b` int, `c,d<` int, `e``f` int", [("a b", "int"), ("c,d<", "int"), ("e`f", "int")]),
        ("s struct<`x,>y`: int>, n int", [("s", "struct<`x,>y`: int>"), ("n", "int")]),
        ("s struct<a int NOT NULL COMMENT 'x, y>'>", [("s", "struct<a int NOT NULL COMMENT 'x, y>'>")]),
        ("größe double, 名前 string, _1 int", [("größe", "double"), ("名前", "string"), ("_1", "int")]),
        (
            "t timestamp without time zone, d interval day to second",
            [("t", "timestamp without time zone"), ("d", "interval day to second")],
        ),
        ("id long?, name string, at DateTime?", [("id", "long?"), ("name", "string"), ("at", "DateTime?")]),
        ("comment string, default int", [("comment", "string"), ("default", "int")]),
        ("id {{ params.kind }}", [("id", "{{ params.kind }}")]),
    ],
)
def test_text_is_cut_into_names_and_types(text: str, columns: list[tuple[str, str]]) -> None:
    assert split_columns(text) == columns


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("id", "'id' is not a name and a type; put names with blanks or special characters in `…`"),
        ("", "'' is not a name and a type; put names with blanks or special characters in `…`"),
        ("id int,", "'' is not a name and a type; put names with blanks or special characters in `…`"),
        ("a.b int", "'a.b int' is not a name and a type; put names with blanks or special characters in `…`"),
        (
            "-- key\nid int",
            "'-- key\\nid int' is not a name and a type; put names with blanks or special characters in `…`",
        ),
        ("`` int", "'`` int' is not a name and a type; put names with blanks or special characters in `…`"),
        ("a decimal(10,2", "a '(' is not closed"),
        ("a array<int, b int", "a '<' is not closed"),
        ("a int>, b int", "a '>' is not opened"),
        ("a array<decimal(10,2>)", "a '>' is not opened"),
        ("`a int", "a quote is not closed"),
        ("a int NOT NULL", "'a int NOT NULL' has NOT NULL, which cannot be declared here"),
        ("a int comment 'x'", "\"a int comment 'x'\" has COMMENT, which cannot be declared here"),
    ],
)
def test_text_that_is_no_list_of_columns_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        split_columns(text)


@pytest.mark.parametrize(
    "columns",
    [
        {"name": "string", "id": "bigint", "city": "string"},
        "name string, id bigint, city string",
        [["name", "string"], ("id", "bigint"), {"name": "city", "type": "string"}],
        (("name", "string"), ("id", "bigint"), ("city", "string")),
    ],
)
@pytest.mark.parametrize(("cls", "needed"), [(FileSource, {"roots": ["/in"]}), (TableSpec, {})])
def test_every_form_is_one_mapping_in_its_order(cls: type[Any], needed: dict[str, Any], columns: Any) -> None:
    spec = validation.from_dict(cls, "x", {**needed, "columns": columns})
    again = validation.from_dict(cls, "x", validation.to_dict(spec))

    assert list(spec.columns.items()) == [("name", "string"), ("id", "bigint"), ("city", "string")]
    assert list(again.columns.items()) == list(spec.columns.items())


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (
            "id",
            (
                f"c='id' is not valid: expected {FORMS} ('id' is not a name and a type; put names with "
                "blanks or special characters in `…`)."
            ),
        ),
        (
            5,
            (f"c=5 is not valid: expected {FORMS}."),
        ),
        (["a"], "c='a' is not valid: expected columns as [name, type] or {'name': …, 'type': …}."),
        (["ab"], "c='ab' is not valid: expected columns as [name, type] or {'name': …, 'type': …}."),
        (
            [{"name": "a", "kind": "int"}],
            (
                "c={'name': 'a', 'kind': 'int'} is not valid: expected columns as [name, type] or "
                "{'name': …, 'type': …}."
            ),
        ),
        ([["a", 5]], "c['a']=5 is not valid: expected text that is not empty."),
        ([[5, "int"]], "c=5 is not valid: expected names that are text."),
        ("id int, ID int", "c='ID' is not valid: expected each column once, whatever the case."),
        ({"id": "int", "Id": "int"}, "c='Id' is not valid: expected each column once, whatever the case."),
        ({1: "int"}, "c={1: 'int'} is not valid: expected a mapping with text keys."),
    ],
)
def test_columns_of_no_such_form_are_refused(value: Any, what: str) -> None:
    with pytest.raises(InputError) as caught:
        columns_from("c", value)

    assert caught.value.what == what


@pytest.mark.parametrize(
    "value",
    [
        None,
        "{{ params.columns }}",
        "id int, {{ params.more }}",
        XCOM,
        [["id", "int"], XCOM],
        [["{{ x }}", "int"]],
    ],
)
def test_what_is_known_only_at_run_time_is_let_through(value: Any) -> None:
    assert columns_from("c", value) == value


@pytest.mark.parametrize(
    ("value", "late"),
    [
        (XCOM, True),
        ("{{ params.source }}", True),
        ({"columns": XCOM}, True),
        ({"columns": "{{ params.columns }}"}, True),
        ({"columns": {"id": "{{ params.kind }}"}, "roots": XCOM}, False),
        ({"roots": "{{ params.root }}"}, False),
        ({}, False),
    ],
)
def test_columns_are_late_if_they_are_a_template_or_an_xcom(value: Any, late: bool) -> None:
    assert is_late(value) is late


def test_only_a_mapping_loses_its_order_on_the_way_through_the_database() -> None:
    check_order("source", {"columns": "id int"})
    check_order("source", {"columns": [["id", "int"]]})
    check_order("source", {})
    for value in ({"columns": {"id": "int"}}, TableSpec(columns="id int")):
        with pytest.raises(InputError, match=r"table\.columns=\{'id': 'int'\} is not valid"):
            check_order("table", value)
