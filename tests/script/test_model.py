"""The user's SELECT: what is taken out of it, and what is refused."""

from __future__ import annotations

import pytest

from airflow_provider_scope.scope.dialect import ScriptError, check_model


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM @data", "SELECT a FROM @data"),
        (" \n SELECT a FROM @data ; ;\n", "SELECT a FROM @data"),
        ("// one\nSELECT a FROM @data; // two", "SELECT a FROM @data"),
        ("SELECT a FROM @data // no line end", "SELECT a FROM @data"),
        ('SELECT ";#" AS a /* ; # */ FROM @data', 'SELECT ";#" AS a /* ; # */ FROM @data'),
        ('SELECT @"a\n ""b" AS a FROM @data', 'SELECT @"a\n ""b" AS a FROM @data'),
        ("(SELECT a FROM @data) UNION ALL (SELECT b FROM @data)",) * 2,
        ("SELECT a[0] AS [x y] FROM @data",) * 2,
    ],
)
def test_a_query_is_kept_as_written_without_what_surrounds_it(sql, expected):
    assert check_model(sql) == expected


@pytest.mark.parametrize(
    ("sql", "code", "line", "column"),
    [
        ("", "empty", 1, 1),
        (" ; // x", "empty", 1, 1),
        ("SELECT a FROM @data; SELECT b FROM @data", "second-statement", 1, 20),
        ("SELECT a FROM @data;\nDROP TABLE @t;", "second-statement", 1, 20),
        ("SELECT (a; b) FROM @data", "second-statement", 1, 10),
        ("SELECT a FROM @data; // x\u2028DROP TABLE @t", "second-statement", 1, 20),
        ("SELECT a\n  #IF x\nFROM @data", "directive", 2, 3),
        ("SELECT a #ENDIF FROM @data", "directive", 1, 10),
        ("SELECT a /*\r\n#IF\r\n*/ FROM @data", "directive", 2, 1),
        ('SELECT @"x\n \t#IF" AS a FROM @data', "directive", 2, 3),
        ("// x\x85#IF\nSELECT a FROM @data", "directive", 2, 1),
        ('SELECT "a FROM @data', "unclosed-string", 1, 8),
        ('SELECT @"a FROM @data', "unclosed-string", 1, 8),
        ("SELECT a /* FROM @data", "unclosed-comment", 1, 10),
        ("SELECT a*/ FROM @data)", "unbalanced", 1, 22),
        ("SELECT (a FROM @data", "unclosed-bracket", 1, 8),
        ("SELECT a[0 FROM @data", "unclosed-bracket", 1, 9),
        ("SELECT (a] FROM @data", "unbalanced", 1, 10),
        ("SELECT [a FROM @data", "unclosed-bracket", 1, 8),
        ("SELECT a FROM @other", "no-data", 1, 1),
        ('SELECT "@data" AS a // @data', "no-data", 1, 1),
        ("SELECT a FROM @Data", "no-data", 1, 1),
        ("@x = SELECT a FROM @data", "not-a-query", 1, 1),
        ("select a from @data", "not-a-query", 1, 1),
        ("PROCESS @data USING X()", "not-a-query", 1, 1),
        ("SELECT '\udcff' FROM @data", "bad-character", 1, 9),
        ("SELECT 'abc' AS a FROM @data", "single-quoted-string", 1, 8),
    ],
)
def test_text_that_would_not_stay_one_query_is_refused_at_its_place(sql, code, line, column):
    with pytest.raises(ScriptError) as caught:
        check_model(sql)
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, line, column)
    assert caught.value.do
