"""Reading scripts: what is understood, and where the rest is refused."""

from __future__ import annotations

import pickle

import pytest

from airflow_provider_scope.emulator.parse import (
    AddColumn,
    Assign,
    Column,
    CreateTable,
    DeclareConstant,
    DeclareTable,
    Delete,
    Extract,
    Fragment,
    Insert,
    SetVariable,
    VirtualColumn,
    parse,
)
from airflow_provider_scope.exceptions import SqlError
from airflow_provider_scope.scope.dialect import ScriptError, tokens

TABLE = "OPTIONS (LAYOUT = DELTA)"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a _b1 é", ["name", "name", "name"]),
        ("@a @@b @@c@@", ["variable", "system", "parameter"]),
        ("1 1L 0x1F 1.5e-3M .5f", ["number"] * 5),
        ("a // x\u2028b", ["name", "name"]),
        ("a /* ; \n */ b", ["name", "name"]),
        ("x[0]", ["name", "symbol", "number", "symbol"]),
        ("f()[0]", ["name", "symbol", "symbol", "symbol", "number", "symbol"]),
        ("SELECT [x y], [z]", ["name", "quoted", "symbol", "quoted"]),
        ("#IF a", ["directive", "name"]),
        ("a--b", ["name", "symbol", "name"]),
    ],
)
def test_text_splits_into_tokens(text, kinds):
    assert [token.kind for token in tokens(text)] == [*kinds, "end"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\"b\\"', 'a"b\\'),
        (r'"\u0041\x41\U0001F600\0\a\b\f\n\r\t\v\'"', "AA😀\0\a\b\f\n\r\t\v'"),
        ('@"a""b\\n\n;"', 'a"b\\n\n;'),
        (r"'\''", "'"),
        ("'x'", "x"),
    ],
)
def test_a_string_stands_for_its_characters(text, value):
    assert [token.value for token in tokens(text)[:-1]] == [value]


def test_tokens_know_their_line_and_column():
    found = tokens('a\r\n  "b"\u2029c')
    assert [(token.line, token.column) for token in found] == [(1, 1), (2, 3), (3, 1), (3, 2)]


def test_every_form_of_the_statements_is_read():
    script = f"""
        SET @@A = -5; SET @@B = 1.5; SET @@D = true;
        #DECLARE @p string = @"c:\\x";
        CREATE TABLE IF NOT EXISTS @t (a:int, [b c] SQL.ARRAY<int?>) PARTITIONED BY (a, [b c])
        LOCATION "/x" {TABLE};
        DECLARE TABLE @rw LOCATION @p {TABLE};
        DELETE FROM @rw WHERE true;
        @d = EXTRACT a int, u = FILE.URI(), b : DateTime? FROM "f1", "f2" USING Extractors.SStream();
        @e = SELECT a FROM @d /* ; */ WHERE b.Split(';')[0] == "x";
        ALTER TABLE @t ADD COLUMN IF NOT EXISTS [d e] SQL.MAP<string, int?>;
        INSERT INTO @t SELECT a FROM @e;
        INSERT INTO @t (a, [b c]) SELECT a, b FROM @e;
        ;
    """
    assert parse(script) == [
        SetVariable("A", -5),
        SetVariable("B", 1.5),
        SetVariable("D", value=True),
        DeclareConstant("p", "c:\\x"),
        CreateTable(
            "t",
            (Column("a", "int"), Column("b c", "SQL.ARRAY<int?>")),
            ("a", "b c"),
            "/x",
        ),
        DeclareTable("rw", "c:\\x"),
        Delete("rw"),
        Extract(
            "d",
            (Column("a", "int"), Column("b", "DateTime?")),
            (VirtualColumn("u", "FILE.URI"),),
            ("f1", "f2"),
        ),
        Assign("e", Fragment("SELECT a FROM @d /* ; */ WHERE b.Split(';')[0] == \"x\"")),
        AddColumn("t", Column("d e", "SQL.MAP<string,int?>")),
        Insert("t", Fragment("SELECT a FROM @e")),
        Insert("t", Fragment("SELECT a, b FROM @e"), ("a", "b c")),
    ]


@pytest.mark.parametrize(
    ("script", "code", "line", "column"),
    [
        ('SET @@A = "x', "unclosed-string", 1, 11),
        ('SET @@A = "x\ny";', "unclosed-string", 1, 11),
        ('SET @@A =\n  @"x', "unclosed-string", 2, 3),
        ("/* x", "unclosed-comment", 1, 1),
        (r'SET @@A = "a\q";', "bad-escape", 1, 13),
        (r'SET @@A = "\ud800";', "bad-escape", 1, 12),
        ("@a = SELECT 'xy';", "single-quoted-string", 1, 13),
        ("@a = SELECT [b;", "unclosed-bracket", 1, 13),
        ('@a = SELECT $"x";', "bad-character", 1, 13),
        ("@a = SELECT 1x;", "bad-number", 1, 13),
        ("@ a", "bad-character", 1, 1),
        ("SET @@A = 1", "syntax", 1, 12),
        ("SET @@A = b;", "syntax", 1, 11),
        ("SET @@A = 0x1F;", "syntax", 1, 11),
        ("SET @@A@@ = 1;", "syntax", 1, 5),
        ("#IF x", "directive", 1, 1),
        ("#DECLARE @a int = 1;", "syntax", 1, 13),
        ('#DECLARE @a string = ""; #DECLARE @a string = "";', "declared-twice", 1, 35),
        ("SELECT a FROM @data;", "unknown-statement", 1, 1),
        ("set @@A = 1;", "unknown-statement", 1, 1),
        (f"CREATE TABLE @t (a int) LOCATION @x {TABLE};", "syntax", 1, 14),
        (f"CREATE TABLE IF NOT EXISTS @t (a int) LOCATION @x {TABLE};", "undeclared", 1, 48),
        (f'CREATE TABLE IF NOT EXISTS @t (a foo) LOCATION "x" {TABLE};', "unknown-type", 1, 34),
        ('DECLARE TABLE @t LOCATION "x" OPTIONS (LAYOUT = CSV);', "syntax", 1, 49),
        ("@a = EXTRACT", "syntax", 1, 13),
        ('@a = EXTRACT u = FILE.NAME() FROM "x" USING E();', "syntax", 1, 18),
        ("@a = SELECT (;", "syntax", 1, 15),
        ("@a = SELECT );", "unbalanced", 1, 13),
        ("@a = SELECT 1 #IF x;", "directive", 1, 15),
        ("INSERT INTO @t VALUES (1);", "syntax", 1, 16),
        ("INSERT INTO @t () SELECT a FROM @b;", "syntax", 1, 17),
        ("INSERT INTO @t (a, A) SELECT a FROM @b;", "syntax", 1, 20),
        ("ALTER TABLE @t DROP COLUMN a;", "syntax", 1, 16),
        ("ALTER TABLE @t ADD COLUMN a int;", "syntax", 1, 27),
        ("ALTER TABLE @t ADD COLUMN IF NOT EXISTS a;", "syntax", 1, 42),
        ("DELETE FROM @t WHERE id == 1;", "syntax", 1, 22),
    ],
)
def test_other_text_is_refused_at_its_place(script, code, line, column):
    with pytest.raises(ScriptError) as caught:
        parse(script)
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, line, column)
    assert isinstance(caught.value, SqlError)
    assert caught.value.do


def test_the_place_survives_pickling():
    error = pickle.loads(pickle.dumps(ScriptError("syntax", 2, 3, "what", "do")))
    assert (error.code, error.line, error.column, error.do) == ("syntax", 2, 3, "do")
    assert error.what == "syntax at line 2, column 3: what"
