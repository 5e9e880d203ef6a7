"""No value of any argument can start a statement: it is refused, or it reads back as itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_scope.emulator.parse import (
    AlterTable,
    Assign,
    CreateTable,
    DeclareConstant,
    DeclareTable,
    Delete,
    Extract,
    Fragment,
    Insert,
    SetVariable,
    parse,
)
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import check_model, parse_type
from airflow_provider_scope.scope.jobs import BatchIdentity
from airflow_provider_scope.scope.script import generate
from airflow_provider_scope.values import FileEntry
from tests.script.values import batch

_PIECES = [
    '"',
    "'",
    "\\",
    ";",
    "#IF",
    "\n",
    "\r",
    "\u2028",
    "\x85",
    "//",
    "/*",
    "*/",
    "@@x@@",
    "]",
    "[",
    "(",
    ")",
]
_PIECES += ["\\u0022", "\0", "é", "😀", '@"', "DROP TABLE @target;", "true", "int", " ", ","]
TEXT = st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), min_size=1, max_size=5).map("".join)
NAME = TEXT | st.from_regex(r"[a-z ]{1,6}", fullmatch=True)
VALUE = TEXT | st.booleans() | st.integers() | st.floats()
TYPE = st.sampled_from(["int", "int?", "string", "byte[]", "DateTime?", "SQL.MAP<string,int?>"])
COLUMNS = st.dictionaries(NAME, TYPE, min_size=1, max_size=2) | st.dictionaries(
    st.just("a"), TYPE | TEXT, min_size=1, max_size=1
)
QUERY = st.one_of(
    TEXT.map(lambda text: f"SELECT {text} FROM @data"),
    TEXT.map(lambda text: f"SELECT 1 AS a FROM @data{text}"),
    TEXT.map(lambda text: f'SELECT @"{text}" AS a FROM @data'),
    TEXT.map(lambda text: f"SELECT 1 AS a /*{text}*/ FROM @data"),
)
FILES = st.lists(TEXT.map(lambda text: f"/in/{text}.ss"), min_size=1, max_size=3).map(
    lambda paths: tuple(FileEntry(1, path, 1) for path in paths)
)
HOSTILE = {
    "location": TEXT,
    "sql": QUERY,
    "files": FILES,
    "identity": st.builds(BatchIdentity, TEXT, st.integers(0, 5), st.integers(0, 5)),
    "table_columns": COLUMNS,
    "extract_columns": COLUMNS,
    "partition_by": st.lists(TEXT, min_size=1, max_size=2).map(tuple),
    "properties": st.dictionaries(TEXT, VALUE, max_size=3),
    "settings": st.dictionaries(NAME, VALUE, max_size=2) | st.dictionaries(st.just("A"), VALUE),
    "feature_previews": st.lists(TEXT, max_size=2).map(tuple),
}
"""Argument -> values that try to break out. One argument at a time, or nearly all would be refused."""


def _check(made):
    try:
        script = generate(made)
    except InputError:
        return
    statements = parse(script)
    expected = (
        [SetVariable("FeaturePreviews", ",".join(made.feature_previews))] if made.feature_previews else []
    )
    expected.append(SetVariable("DeltaLakeCommitCondition", "FailIfFileConflict"))
    expected.append(SetVariable("MaxFileCountPerOutputFileSet", 5000))
    expected += [SetVariable(name, value) for name, value in made.settings.items()]
    expected.append(DeclareConstant("deltaPath", made.location))
    assert statements[: len(expected)] == expected
    rest = iter(statements[len(expected) :])

    create = next(rest)
    assert isinstance(create, CreateTable)
    assert {column.name: column.type for column in create.columns} == {
        name: parse_type(kind).text for name, kind in made.table_columns.items()
    }
    assert (create.partition_by, create.location) == (made.partition_by, made.location)
    properties = [
        (key, {True: "true", False: "false"}[value] if isinstance(value, bool) else value)
        for key, value in made.properties.items()
    ]
    properties.append(("adlaScope.batch", made.identity.marker))
    assert next(rest) == AlterTable("target", tuple(properties))
    if made.overwrite:
        assert next(rest) == DeclareTable("target_rw", made.location)
        assert next(rest) == Delete("target_rw")
    extract = next(rest)
    assert isinstance(extract, Extract)
    assert extract.files == tuple(file.path for file in made.files)
    if made.extract_columns:
        assert [column.name for column in extract.columns] == list(made.extract_columns)
    assert next(rest) == Assign("batch_data", Fragment(check_model(made.sql)))
    insert = next(rest)
    assert isinstance(insert, Insert)
    assert insert.select.text.startswith("SELECT")
    assert list(rest) == [AlterTable("target", (("adlaScope.batch", made.identity.closing_marker),))]


@pytest.mark.parametrize("argument", HOSTILE)
@given(source=st.data(), overwrite=st.booleans())
def test_a_value_stays_one_value(argument, source, overwrite):
    changes = {"partition_by": (), argument: source.draw(HOSTILE[argument])}
    _check(batch(**changes, overwrite=overwrite))


@given(NAME)
def test_a_name_of_a_column_stays_one_name(name):
    _check(batch(table_columns={name: "int"}, extract_columns={name: "int?"}, partition_by=(name,)))


def test_most_values_are_quoted_and_not_refused():
    hostile = 'x"; DROP TABLE @target; // \u2028 \\'
    _check(batch(properties={hostile: hostile}, location=hostile, feature_previews=(hostile,)))
    generate(batch(properties={hostile: hostile}, location=hostile, feature_previews=(hostile,)))
