"""SCOPE queries over rows: what expressions give, and everything else refused at its place."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_provider_scope.emulator.csharp import date_format
from airflow_provider_scope.emulator.parse import Assign, parse
from airflow_provider_scope.emulator.scripts import arrow_type, compile_query
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import ScriptError

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC)
TYPES_AND_VALUES = {
    "a": ("int", 7),
    "minus": ("int", -7),
    "n": ("int?", None),
    "l": ("long?", 9),
    "big": ("long", 2**63 - 1),
    "u": ("uint", 3),
    "h": ("short", 2),
    "x": ("double", 2.5),
    "nan": ("double", float("nan")),
    "f": ("float", 0.5),
    "dec": ("decimal", Decimal("1.5")),
    "s": ("string", "p.q"),
    "empty": ("string", None),
    "b": ("bool", True),
    "bn": ("bool?", None),
    "t": ("DateTime", MOMENT),
    "tn": ("DateTime?", None),
    "g": ("Guid", "A-B"),
    "y": ("byte[]", b"1"),
    "m": ("SQL.MAP<string,int?>", [("k", 1)]),
}
ROWSETS = {
    "data": {name: kind for name, (kind, _) in TYPES_AND_VALUES.items()},
    "other": {"k": "string", "two words": "long"},
}
MIN = datetime(1, 1, 1, tzinfo=UTC)


def compiled(query):
    (statement,) = parse(f"@q={query}\n;")
    assert isinstance(statement, Assign)
    return compile_query(statement.select, ROWSETS)


def rows(query, table):
    return compiled(query).run(table).to_pylist()


@pytest.fixture(scope="module")
def data():
    return pa.table(
        {name: pa.array([value], arrow_type(kind)) for name, (kind, value) in TYPES_AND_VALUES.items()}
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM @other", [{"k": "x", "two words": 1}, {"k": None, "two words": 2}]),
        (
            "SELECT [two words], k AS K2 FROM @other",
            [{"two words": 1, "K2": "x"}, {"two words": 2, "K2": None}],
        ),
        ('SELECT k FROM @other WHERE k == "x" // end', [{"k": "x"}]),
        ("SELECT k, [two words] * 2L AS v FROM @other WHERE k == null", [{"k": None, "v": 4}]),
        ("SELECT k AS v FROM @other WHERE false", []),
    ],
)
def test_a_query_picks_computes_and_filters(query, expected):
    other = pa.table({"k": ["x", None], "two words": [1, 2]})
    assert rows(query, other) == expected


@pytest.mark.parametrize(
    ("expression", "value", "kind"),
    [
        # literals
        ("1", 1, "int"),
        ("1L", 1, "long"),
        ("1.50", 1.5, "double"),
        ('"it\'s \\\\ ü"', "it's \\ ü", "string"),
        ("true", True, "bool"),
        ("(int?)null", None, "int?"),
        ("DateTime.MinValue", MIN, "DateTime"),
        # the shapes of dbt-scope's models
        ('DateTime.UtcNow.ToString("yyyy-MM-dd") != ""', True, "bool"),
        ("(long)(l ?? 0L)", 9, "long"),
        ("(long)(n ?? 0)", 0, "long"),
        ("(DateTime)(tn ?? DateTime.MinValue)", MIN, "DateTime"),
        ("s.Split('.')[1]", "q", "string"),
        # casts
        ("(double)a", 7.0, "double"),
        ("(long?)n", None, "long?"),
        ("(int)x", 2, "int"),
        ("(int)-2.9", -2, "int"),
        ("(decimal)a", Decimal(7), "decimal"),
        # equality
        ("a == 7", True, "bool"),
        ("n == 1", False, "bool"),
        ("n != 1", True, "bool"),
        ("n == n", True, "bool"),
        ("null != n", False, "bool"),
        ("n IS NOT NULL", False, "bool"),
        ("nan == nan", False, "bool"),
        ("nan != nan", True, "bool"),
        ("bn == true", False, "bool"),
        ("dec == 1", False, "bool"),
        # order
        ("a < 8", True, "bool"),
        ("n >= 2", False, "bool"),
        ("!(n < 2)", True, "bool"),
        ("nan > a", False, "bool"),
        ("t > DateTime.MinValue", True, "bool"),
        # logic; the right side counts only if the left one does not decide
        ("b && a == 1 || !b", False, "bool"),
        ("NOT b AND b OR b", True, "bool"),
        ("empty != null && empty.Split(',')[0] == \"q\"", False, "bool"),
        ("b || 1 / (a - 7) == 1", True, "bool"),
        ('b ? "x" : s', "x", "string"),
        ("!b ? a : l", 9, "long?"),
        ("b ? a : a / 0", 7, "int"),
        ("n ?? l ?? 0", 9, "long"),
        # arithmetic
        ("a + 1 * 2", 9, "int"),
        ("minus / 2", -3, "int"),
        ("minus % 2", -1, "int"),
        ("n + 1", None, "int?"),
        ("l % 2", 1, "long?"),
        ("x / 2", 1.25, "double"),
        ("h + h", 4, "int"),
        ("(long)u - a", -4, "long"),
        ("u - l", -6, "long?"),
        ("-a", -7, "int"),
        ("big == 9223372036854775808.0", True, "bool"),
        ("big < 9223372036854775808.0", False, "bool"),
        # text
        ('s + "-" + n + 1', "p.q-1", "string"),
        ("\"x\" + 'y' + b", "xyTrue", "string"),
        ("n.ToString()", "", "string"),
        ("b.ToString()", "True", "string"),
        ('t.ToString("yyyyMMdd HH:mm:ss.fff")', "20260102 03:04:05.678", "string"),
        # columns that only pass through
        ("y", b"1", "byte[]"),
        ("g", "A-B", "Guid"),
        ("m", [("k", 1)], "SQL.MAP<string,int?>"),
    ],
)
def test_an_expression_has_its_value_and_its_type(data, expression, value, kind):
    query = compiled(f"SELECT {expression} AS v FROM @data")
    assert query.run(data).to_pylist() == [{"v": value}]
    assert query.columns == {"v": kind}


def test_a_zero_has_a_sign(data):
    assert str(rows("SELECT -(x - x) AS v, -(a - a) AS w FROM @data", data)) == "[{'v': -0.0, 'w': 0}]"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("empty.Split('.')[0]", "null string"),
        ("s.Split('.')[2]", r"\[2\] is outside of the 2 parts"),
        ("(int)n", "a null was cast to int"),
        ("(int)big", "does not fit into a int"),
        ("(int)nan", "cannot be cast to int"),
        ("big + 1", "does not fit into a long"),
        ("a / 0", "7 / 0"),
        ("x % 0", "2.5 % 0"),
    ],
)
def test_an_expression_that_fails_for_a_row_fails_the_query(data, expression, message):
    with pytest.raises(InputError, match=message):
        rows(f"SELECT {expression} AS v FROM @data", data)


@pytest.mark.parametrize(
    ("query", "code", "column"),
    [
        ("SELECT a", "no-from", 1),
        ("SELECT a FROM other", "not-a-rowset", 15),
        ("SELECT a FROM @unknown", "unknown-rowset", 15),
        ("SELECT a FROM @data AS d", "not-supported", 21),
        ("SELECT a FROM @data JOIN @other ON a == k", "not-supported", 21),
        ("SELECT a FROM @data GROUP BY a", "not-supported", 21),
        ("SELECT a FROM @data UNION ALL SELECT a FROM @data", "not-supported", 21),
        ("SELECT DISTINCT a FROM @data", "not-supported", 8),
        ("SELECT COUNT() AS c FROM @data", "unknown-column", 8),
        ("(SELECT a FROM @data)", "syntax", 1),
        ("SELECT a, @@x AS y FROM @data", "system", 11),
        ("SELECT a, @@x@@ AS y FROM @data", "parameter", 11),
        ("SELECT @x AS y FROM @data", "not-supported", 8),
        ("SELECT A FROM @data", "unknown-column", 8),
        ("SELECT a, b AS A FROM @data", "ambiguous", 11),
        ("SELECT a + 1 FROM @data", "no-alias", 8),
        ("SELECT null AS v FROM @data", "no-type", 8),
        ("SELECT s.Split('.') AS v FROM @data", "no-type", 8),
        ("SELECT a FROM @data WHERE a", "not-a-condition", 21),
        ("SELECT a FROM @data WHERE !bn", "not-a-condition", 27),
        ("SELECT a FROM @data WHERE a = 1", "single-equals", 29),
        ("SELECT a FROM @data WHERE b ? b : b AND b", "unclear-precedence", 37),
        ("SELECT a FROM @data WHERE NOT b ? b : b", "unclear-precedence", 27),
        ('SELECT a FROM @data WHERE s < "x"', "not-ordered", 29),
        ("SELECT a FROM @data WHERE y == y", "not-comparable", 29),
        ("SELECT a FROM @data WHERE g == g", "not-comparable", 29),
        ("SELECT a FROM @data WHERE s == 1", "type-mismatch", 29),
        ("SELECT a FROM @data WHERE dec == x", "type-mismatch", 31),
        ("SELECT a FROM @data WHERE f == a", "type-mismatch", 29),
        ("SELECT a FROM @data WHERE a IN (1)", "not-supported", 29),
        ("SELECT a ?? 1 AS v FROM @data", "never-null", 10),
        ("SELECT b ? a : null AS v FROM @data", "no-common-type", 10),
        ("SELECT b ? a : s AS v FROM @data", "type-mismatch", 10),
        ("SELECT dec + dec AS v FROM @data", "arithmetic", 12),
        ("SELECT u - u AS v FROM @data", "arithmetic", 10),
        ("SELECT u - 4 AS v FROM @data", "arithmetic", 10),
        ("SELECT 'a' + 1 AS v FROM @data", "type-mismatch", 12),
        ("SELECT s + x AS v FROM @data", "text-form", 10),
        ("SELECT x.ToString() AS v FROM @data", "not-supported", 10),
        ('SELECT t.ToString("D") AS v FROM @data', "date-format", 10),
        ('SELECT tn.ToString("yyyy") AS v FROM @data', "date-format", 11),
        ("SELECT t.ToString(s) AS v FROM @data", "date-format", 10),
        ("SELECT s.Length AS v FROM @data", "not-supported", 10),
        ("SELECT s.Split('.')[-1] AS v FROM @data", "syntax", 22),
        ("SELECT s[0] AS v FROM @data", "not-supported", 9),
        ("SELECT a(1) AS v FROM @data", "not-supported", 9),
        ("SELECT DateTime.Now AS v FROM @data", "not-supported", 17),
        ("SELECT (uint)a AS v FROM @data", "cast", 8),
        ("SELECT (string)a AS v FROM @data", "cast", 8),
        ("SELECT (decimal)x AS v FROM @data", "cast", 8),
        ("SELECT (int)null AS v FROM @data", "null-cast", 8),
        ("SELECT 1.5M AS v FROM @data", "number", 8),
        ("SELECT 2147483648 AS v FROM @data", "number", 8),
        ("SELECT 99999999999999999999 AS v FROM @data", "number", 8),
        ("SELECT " + "(" * 3000 + "a" + ")" * 3000 + " AS v FROM @data", "too-deep", 1),
    ],
)
def test_anything_else_is_refused_at_its_place(query, code, column):
    with pytest.raises(ScriptError) as caught:
        compiled(f"\n{query}")
    # At the end of the query, which is on the next line, there is no FROM.
    place = {"too-deep": (1, 1), "no-from": (3, 1)}.get(code, (2, column))
    assert (caught.value.code, caught.value.line, caught.value.column) == (code, *place)
    assert caught.value.do


@pytest.mark.parametrize(
    ("net", "text"),
    [
        ("yyyyMMdd", "20260102"),
        ("yyyy-MM-dd HH:mm:ss.ffffff", "2026-01-02 03:04:05.678901"),
        ("yy[", "26["),
        *(
            (other, None)
            for other in ("d", "", "MMM dd", "fffffff", "FF", "yyyyK", "yyyy'x'", "%d", "yyyy\\")
        ),
    ],
)
def test_a_date_is_written_by_a_format_whose_every_part_is_known(net, text):
    write = date_format(net)
    assert (write and write(MOMENT)) == text
