"""SCOPE queries as Spark SQL: the shapes that are read, and everything else refused at its place."""

from __future__ import annotations

import pytest
import sqlglot

from airflow_provider_scope.emulator.lowering import date_format
from airflow_provider_scope.emulator.translate import translate
from airflow_provider_scope.scope.check import ScriptError
from airflow_provider_scope.sql import literal

ROWSETS = {
    "data": {
        "a": "int",
        "n": "int?",
        "l": "long?",
        "u": "uint",
        "h": "short",
        "x": "double",
        "f": "float",
        "dec": "decimal",
        "s": "string",
        "b": "bool",
        "bn": "bool?",
        "t": "DateTime",
        "tn": "DateTime?",
        "g": "Guid",
        "y": "byte[]",
        "m": "SQL.MAP<string,int?>",
    },
    "other": {"k": "string", "two words": "long"},
    "twins": {"a": "int", "A": "int"},
    "odd": {"${a}": "int", "b`c": "int"},
}
RAISE_SPLIT = "raise_error('Split was called on a null string')"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT * FROM @other",
            "SELECT `other`.`k` AS `k`, `other`.`two words` AS `two words` FROM `other`",
        ),
        (
            "SELECT [two words], k AS K2 FROM @other",
            "SELECT `other`.`two words` AS `two words`, `other`.`k` AS `K2` FROM `other`",
        ),
        ("SELECT DISTINCT r.k FROM @other AS r", "SELECT DISTINCT `r`.`k` AS `k` FROM `other` AS `r`"),
        ("SELECT k FROM @other // end", "SELECT `other`.`k` AS `k` FROM `other`"),
        ("SELECT [b`c] FROM @odd", "SELECT `odd`.`b``c` AS `b``c` FROM `odd`"),
        (
            'SELECT k FROM @other WHERE k == "x"',
            "SELECT `other`.`k` AS `k` FROM `other` WHERE (`other`.`k` <=> 'x')",
        ),
        (
            "SELECT s, COUNT() AS c FROM @data GROUP BY s, a",
            "SELECT `data`.`s` AS `s`, count(*) AS `c` FROM `data` GROUP BY `data`.`s`, `data`.`a`",
        ),
    ],
)
def test_a_query_keeps_its_shape(query, expected):
    assert translate(query, ROWSETS).sql == expected


@pytest.mark.parametrize(
    ("scope", "spark", "kind"),
    [
        # literals
        ("1", "1", "int"),
        ("2147483648", "2147483648L", "uint"),
        ("1L", "1L", "long"),
        ("1.50", "CAST('1.50' AS DOUBLE)", "double"),
        ('"it\'s \\\\ ${x}"', r"'it\'s \\ \u0024{x}'", "string"),
        ("true", "true", "bool"),
        ("(int?)null", "CAST(NULL AS int)", "int?"),
        ("DateTime.MinValue", "TIMESTAMP '0001-01-01 00:00:00Z'", "DateTime"),
        # the shapes of dbt-scope's models
        ('DateTime.UtcNow.ToString("yyyyMMdd")', "date_format(current_timestamp(), 'yyyyMMdd')", "string"),
        ("(long)(l ?? 0L)", "coalesce(`data`.`l`, 0L)", "long"),
        ("(long)(l ?? 0)", "coalesce(`data`.`l`, 0)", "long"),
        (
            "(DateTime)(tn ?? DateTime.MinValue)",
            "coalesce(`data`.`tn`, TIMESTAMP '0001-01-01 00:00:00Z')",
            "DateTime",
        ),
        ("s.Split('.')[1]", rf"split(coalesce(`data`.`s`, {RAISE_SPLIT}), '\\.')[1]", "string"),
        # casts
        ("(double)a", "CAST(`data`.`a` AS double)", "double"),
        ("(long?)n", "CAST(`data`.`n` AS bigint)", "long?"),
        ("(int)n", "coalesce(`data`.`n`, raise_error('a null was cast to int'))", "int"),
        ("(int)-1", "(- CAST(1 AS int))", "int"),
        # equality
        ("a == 1", "(`data`.`a` = 1)", "bool"),
        ("n == 1", "(`data`.`n` <=> 1)", "bool"),
        ("n != 1", "(NOT (`data`.`n` <=> 1))", "bool"),
        ("n == null", "(`data`.`n` IS NULL)", "bool"),
        ("null != n", "(`data`.`n` IS NOT NULL)", "bool"),
        ("n IS NOT NULL", "(`data`.`n` IS NOT NULL)", "bool"),
        ("x == 1", "((`data`.`x` = 1) AND NOT isnan(`data`.`x`))", "bool"),
        ("1 != x", "(NOT ((1 = `data`.`x`) AND NOT isnan(`data`.`x`)))", "bool"),
        ("bn == true", "(`data`.`bn` <=> true)", "bool"),
        ("g == g", "(lower(`data`.`g`) = lower(`data`.`g`))", "bool"),
        # order
        ("a < 2", "(`data`.`a` < 2)", "bool"),
        ("n >= 2", "coalesce((`data`.`n` >= 2), false)", "bool"),
        ("!(n < 2)", "(NOT coalesce((`data`.`n` < 2), false))", "bool"),
        ("x > a", "((`data`.`x` > `data`.`a`) AND NOT isnan(`data`.`x`))", "bool"),
        # logic
        ("b && a == 1 || !b", "((`data`.`b` AND (`data`.`a` = 1)) OR (NOT `data`.`b`))", "bool"),
        ("NOT b AND b OR b", "(((NOT `data`.`b`) AND `data`.`b`) OR `data`.`b`)", "bool"),
        (
            "s != null && s.Split(',')[0] == \"q\"",
            (
                "(CASE WHEN (`data`.`s` IS NOT NULL) THEN "
                f"(split(coalesce(`data`.`s`, {RAISE_SPLIT}), ',')[0] = 'q') ELSE false END)"
            ),
            "bool",
        ),
        (
            "b || 1 / a == 1",
            (
                "(CASE WHEN `data`.`b` THEN true ELSE "
                "(CAST(CAST(1 AS int) DIV CAST(`data`.`a` AS int) AS int) = 1) END)"
            ),
            "bool",
        ),
        ('b ? "x" : s', "(CASE WHEN `data`.`b` THEN 'x' ELSE `data`.`s` END)", "string"),
        ("b ? a : l", "(CASE WHEN `data`.`b` THEN `data`.`a` ELSE `data`.`l` END)", "long?"),
        ("n ?? l ?? 0", "coalesce(`data`.`n`, coalesce(`data`.`l`, 0))", "long"),
        # arithmetic
        ("a + 1 * 2", "(CAST(`data`.`a` AS int) + CAST((CAST(1 AS int) * CAST(2 AS int)) AS int))", "int"),
        ("a / 2", "CAST(CAST(`data`.`a` AS int) DIV CAST(2 AS int) AS int)", "int"),
        ("l % 2", "(CAST(`data`.`l` AS bigint) % CAST(2 AS bigint))", "long?"),
        ("x / 2", "(CAST(`data`.`x` AS double) / CAST(2 AS double))", "double"),
        ("h + h", "(CAST(`data`.`h` AS int) + CAST(`data`.`h` AS int))", "int"),
        ("u + a", "(CAST(`data`.`u` AS bigint) + CAST(`data`.`a` AS bigint))", "long"),
        # text
        (
            's + "-" + n',
            "concat(concat(coalesce(`data`.`s`, ''), '-'), coalesce(CAST(`data`.`n` AS STRING), ''))",
            "string",
        ),
        ("\"x\" + 'y' + a", "concat(concat('x', 'y'), CAST(`data`.`a` AS STRING))", "string"),
        ("n.ToString()", "coalesce(CAST(`data`.`n` AS STRING), '')", "string"),
        (
            "b.ToString()",
            "CASE WHEN `data`.`b` THEN 'True' WHEN NOT `data`.`b` THEN 'False' END",
            "string",
        ),
        ("string.IsNullOrEmpty(s)", "(coalesce(`data`.`s`, '') = '')", "bool"),
        # columns that only pass through
        ("y", "`data`.`y`", "byte[]"),
        ("m", "`data`.`m`", "SQL.MAP<string,int?>"),
    ],
)
def test_an_expression_means_the_same_in_spark(scope, spark, kind):
    done = translate(f"SELECT {scope} AS v FROM @data", ROWSETS)
    assert done.sql == f"SELECT {spark} AS `v` FROM `data`"
    assert done.columns == {"v": kind}
    sqlglot.parse_one(done.sql, dialect="spark")


@pytest.mark.parametrize(
    ("scope", "spark", "kind"),
    [
        ("COUNT(*)", "count(*)", "long"),
        ("COUNT(DISTINCT s)", "count(DISTINCT `data`.`s`)", "long"),
        ("SUM(n)", "sum(`data`.`n`)", "long?"),
        ("SUM(x)", "sum(`data`.`x`)", "double?"),
        ("AVG(x)", "avg(`data`.`x`)", "double?"),
        ("MAX(tn ?? t)", "max(coalesce(`data`.`tn`, `data`.`t`))", "DateTime?"),
        ("SUM(b ? 1 : 0)", "sum((CASE WHEN `data`.`b` THEN 1 ELSE 0 END))", "long?"),
    ],
)
def test_an_aggregate_means_the_same_in_spark(scope, spark, kind):
    done = translate(f"SELECT {scope} AS v FROM @data", ROWSETS)
    assert (done.sql, done.columns) == (f"SELECT {spark} AS `v` FROM `data`", {"v": kind})


@pytest.mark.parametrize(
    ("query", "code", "column"),
    [
        ("SELECT a", "no-from", 9),
        ("SELECT a FROM other", "not-a-rowset", 15),
        ("SELECT a FROM @unknown", "unknown-rowset", 15),
        ("SELECT a FROM @twins", "ambiguous", 15),
        ("SELECT a FROM @data AS", "syntax", 23),
        ("SELECT a FROM @data d", "not-supported", 21),
        ("SELECT a FROM @data JOIN @other ON a == k", "not-supported", 21),
        ("SELECT a FROM @data HAVING a == 1", "not-supported", 21),
        ("SELECT a FROM @data UNION ALL SELECT a FROM @data", "not-supported", 21),
        ("SELECT a FROM @data;", "not-supported", 20),
        ("(SELECT a FROM @data)", "syntax", 1),
        ("SELECT TOP 1 a FROM @data", "not-supported", 8),
        ("SELECT a, @@x AS y FROM @data", "system", 11),
        ("SELECT a, @@x@@ AS y FROM @data", "parameter", 11),
        ("SELECT @x AS y FROM @data", "not-supported", 8),
        ("SELECT a #IF x FROM @data", "directive", 10),
        ("SELECT A FROM @data", "unknown-column", 8),
        ("SELECT r.z FROM @data AS r", "unknown-column", 10),
        ("SELECT a, b AS A FROM @data", "ambiguous", 11),
        ("SELECT a + 1 FROM @data", "no-alias", 8),
        ("SELECT null AS v FROM @data", "no-type", 8),
        ("SELECT s.Split('.') AS v FROM @data", "no-type", 8),
        ("SELECT [${a}] FROM @odd", "name", 1),
        ("SELECT a FROM @data WHERE a", "not-a-condition", 21),
        ("SELECT a FROM @data WHERE bn", "not-a-condition", 21),
        ("SELECT a FROM @data WHERE !bn", "not-a-condition", 27),
        ("SELECT a FROM @data WHERE a = 1", "single-equals", 29),
        ("SELECT a FROM @data WHERE COUNT() > 1", "aggregate", 21),
        ("SELECT a FROM @data WHERE b ? b : b AND b", "unclear-precedence", 37),
        ('SELECT a FROM @data WHERE s < "x"', "not-ordered", 29),
        ("SELECT a FROM @data WHERE y == y", "not-comparable", 29),
        ("SELECT a FROM @data WHERE s == 1", "type-mismatch", 29),
        ("SELECT a FROM @data WHERE dec == x", "type-mismatch", 31),
        ("SELECT a FROM @data WHERE f == a", "type-mismatch", 29),
        ("SELECT a FROM @data WHERE a IN (1)", "not-supported", 29),
        ("SELECT a ?? 1 AS v FROM @data", "never-null", 10),
        ("SELECT b ? a : null AS v FROM @data", "no-common-type", 10),
        ("SELECT b ? a : s AS v FROM @data", "type-mismatch", 10),
        ("SELECT dec + dec AS v FROM @data", "arithmetic", 12),
        ("SELECT u - u AS v FROM @data", "arithmetic", 10),
        ("SELECT f * f AS v FROM @data", "arithmetic", 10),
        ("SELECT a | 1 AS v FROM @data", "not-supported", 10),
        ("SELECT 'a' + 1 AS v FROM @data", "type-mismatch", 12),
        ("SELECT s + x AS v FROM @data", "text-form", 10),
        ("SELECT s + t AS v FROM @data", "text-form", 10),
        ("SELECT x.ToString() AS v FROM @data", "not-supported", 10),
        ("SELECT t.ToString() AS v FROM @data", "not-supported", 10),
        ('SELECT t.ToString("D") AS v FROM @data', "date-format", 10),
        ('SELECT tn.ToString("yyyy") AS v FROM @data', "date-format", 11),
        ("SELECT t.ToString(s) AS v FROM @data", "date-format", 10),
        ("SELECT s.Length AS v FROM @data", "not-supported", 10),
        ('SELECT s.Split(".")[0] AS v FROM @data', "not-supported", 10),
        ("SELECT s.Split('.')[-1] AS v FROM @data", "syntax", 22),
        ("SELECT s[0] AS v FROM @data", "not-supported", 9),
        ("SELECT Foo(a) AS v FROM @data", "unknown-column", 8),
        ("SELECT DateTime.Now AS v FROM @data", "not-supported", 17),
        ("SELECT string.Join(s) AS v FROM @data", "not-supported", 15),
        ("SELECT (uint)a AS v FROM @data", "cast", 8),
        ("SELECT (string)a AS v FROM @data", "cast", 8),
        ("SELECT (decimal)x AS v FROM @data", "cast", 8),
        ("SELECT (int)null AS v FROM @data", "null-cast", 8),
        ("SELECT 1.5M AS v FROM @data", "number", 8),
        ("SELECT 99999999999999999999 AS v FROM @data", "number", 8),
        ("SELECT a, COUNT() AS c FROM @data", "implicit-group-by", 8),
        ("SELECT COUNT() AS c FROM @data GROUP BY 1", "group-by", 41),
        ("SELECT SUM(SUM(a)) AS c FROM @data", "nested-aggregate", 12),
        ("SELECT AVG(a) AS c FROM @data", "aggregate", 8),
        ("SELECT SUM(dec) AS c FROM @data", "aggregate", 8),
        ("SELECT MAX(s) AS c FROM @data", "aggregate", 8),
        ("SELECT FIRST(a) AS c FROM @data", "unknown-column", 8),
        ("SELECT " + "(" * 3000 + "a" + ")" * 3000 + " AS v FROM @data", "too-deep", 1),
    ],
)
def test_anything_else_is_refused_at_its_place(query, code, column):
    with pytest.raises(ScriptError) as caught:
        translate(query, ROWSETS)
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, 1, column)
    assert caught.value.do


@pytest.mark.parametrize(
    ("net", "spark"),
    [
        ("yyyyMMdd", "yyyyMMdd"),
        ("yyyy-MM-ddTHH:mm:ss.fff", "yyyy-MM-dd'T'HH:mm:ss.SSS"),
        ("dddd d MMM yy", "EEEE d MMM yy"),
        ("hh:mm tt", "hh:mm a"),
        ("yyyy[", "yyyy'['"),
        ("d", None),
        ("", None),
        ("fffffff", None),
        ("FF", None),
        ("yyyyK", None),
        ("ddddd", None),
        ("yyyy'x'", None),
        ("%d", None),
    ],
)
def test_a_date_format_has_a_spark_pattern_or_none(net, spark):
    assert date_format(net) == spark


def test_a_string_literal_holds_nothing_that_spark_fills_in():
    assert literal("a'b\\${c}") == r"'a\'b\\\u0024{c}'"
