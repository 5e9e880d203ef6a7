"""The user's SELECT: ``@data`` and the virtual columns in it, and misspelt columns."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import InputError, SqlError
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.specs.ingest import check_select
from airflow_provider_scope.sql import over_view, takes_all_columns, words


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM @data", "SELECT * FROM v"),
        ("select * from @DATA", "select * from v"),
        ("SELECT * FROM(@data)", "SELECT * FROM(v)"),
        (
            "SELECT a.x FROM @data a JOIN @data AS b ON a.x = b.x",
            "SELECT a.x FROM v a JOIN v AS b ON a.x = b.x",
        ),
        ("SELECT '@data' FROM @data", "SELECT '@data' FROM v"),
        ('SELECT "@data" FROM @data', 'SELECT "@data" FROM v'),
        ("SELECT `@data` FROM @data", "SELECT `@data` FROM v"),
        ("SELECT `a``@data` FROM @data", "SELECT `a``@data` FROM v"),
        (r"SELECT 'it\'s @data' FROM @data", r"SELECT 'it\'s @data' FROM v"),
        (r'SELECT "a\"@data" FROM @data', r'SELECT "a\"@data" FROM v'),
        (r"SELECT '\\' FROM @data", r"SELECT '\\' FROM v"),
        ("SELECT 'it''s @data' FROM @data", "SELECT 'it''s @data' FROM v"),
        ("SELECT 1 -- from @data\nFROM @data", "SELECT 1 -- from @data\nFROM v"),
        ("SELECT 1 -- it's\nFROM @data -- it's", "SELECT 1 -- it's\nFROM v -- it's"),
        ("SELECT /* @data\n' */ 1 FROM @data", "SELECT /* @data\n' */ 1 FROM v"),
        ("SELECT '--' AS x FROM @data", "SELECT '--' AS x FROM v"),
        ("SELECT 1 - -1 FROM @data", "SELECT 1 - -1 FROM v"),
        ("SELECT @data_2, @database FROM @data", "SELECT @data_2, @database FROM v"),
        ("  SELECT 1 FROM @data ;\n", "SELECT 1 FROM v"),
        ("SELECT ';' FROM @data;;", "SELECT ';' FROM v"),
        ("SELECT x FROM @data WHERE y = ';'", "SELECT x FROM v WHERE y = ';'"),
        ("SELECT :day, 'a:b' FROM @data", "SELECT :day, 'a:b' FROM v"),
    ],
)
def test_the_view_stands_where_data_does_outside_of_quotes_and_comments(sql: str, expected: str) -> None:
    assert over_view(sql, "v") == expected


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "   ;",
        "SELECT 1",
        "SELECT * FROM data",
        "SELECT '@data'",
        'SELECT "@data"',
        "SELECT * FROM `@data`",
        "SELECT 1 -- @data",
        "SELECT /* FROM @data */ 1",
        "SELECT * FROM @database",
        "SELECT * FROM @data_2",
    ],
)
def test_a_select_that_does_not_read_data_is_refused(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        over_view(sql, "v")

    assert caught.value.what == f"The SQL does not read @data: {sql.strip()!r}."
    assert caught.value.do == "select from @data, the files of one batch: SELECT … FROM @data"
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    "call", ["input_file_name()", "INPUT_FILE_BLOCK_START ( )", "input_file_block_length()"]
)
def test_what_spark_knows_of_a_row_only_while_it_reads_its_file_is_refused(call: str) -> None:
    others = (
        "SELECT my_input_file_name(), input_file_name, 'input_file_name()' -- input_file_name()\nFROM @data"
    )
    assert over_view(others, "v").endswith("FROM v")
    with pytest.raises(SqlError, match="is empty where rows are held") as caught:
        over_view(f"SELECT *, {call} AS f FROM @data", "v")

    assert "source_file_uri" in caught.value.do


def test_a_long_text_is_shown_by_its_beginning() -> None:
    with pytest.raises(SqlError) as caught:
        over_view("SELECT " + "x" * 10_000, "v")

    assert caught.value.what == f"The SQL does not read @data: 'SELECT {'x' * 193}'."


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT Source_File_URI FROM @data", {"select", "source_file_uri", "from"}),
        ("SELECT `Source_File_URI` FROM @data", {"select", "source_file_uri", "from"}),
        ("SELECT d.source_file_uri FROM @data d", {"select", "d", "source_file_uri", "from"}),
        ("SELECT 'source_file_uri' x FROM @data", {"select", "x", "from"}),
        ('SELECT "source_file_uri" x FROM @data', {"select", "x", "from"}),
        ("SELECT x -- source_file_uri\nFROM @data", {"select", "x", "from"}),
        ("SELECT x /* source_file_uri */ FROM @data", {"select", "x", "from"}),
        ("SELECT my_source_file_uri FROM @data", {"select", "my_source_file_uri", "from"}),
    ],
)
def test_the_names_in_a_select_are_those_outside_of_text_and_comments(sql: str, expected: set[str]) -> None:
    assert words(sql) == expected


# ---- misspelt columns; what is not certain is left to Spark ------------------------------------------


COLUMNS = ["year", "month", "carrier", "place", "tags"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM @data",
        "SELECT year, MONTH FROM @data",
        "SELECT d.year FROM @data d",
        "SELECT d.place.city FROM @data AS d",
        "SELECT place.city, source_file_uri FROM @data",
        "SELECT year AS y, y + 1 AS next FROM @data",
        "SELECT make_date(year, month, 1) AS day FROM @data WHERE carrier = :carrier",
        "SELECT transform(tags, t -> upper(t)) AS tags FROM @data",
        "SELECT year, tag FROM @data LATERAL VIEW explode(tags) x AS tag",
        "WITH a AS (SELECT year AS y FROM @data) SELECT y FROM a",
        "SELECT a.y FROM (SELECT year AS y FROM @data) a",
        "SELECT carrier, count(*) AS n FROM @data GROUP BY carrier HAVING n > 1",
        "SELECT typo FROM @data JOIN other USING (year)",
        "this is not SQL that the parser knows, @data",
        "SELECT year, row_number() OVER (PARTITION BY month ORDER BY year) AS r FROM @data QUALIFY r = 1",
    ],
)
def test_a_select_that_may_be_right_passes(sql):
    assert check_select(sql, COLUMNS) is None


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("SELECT yaer FROM @data", "yaer (did you mean year?)"),
        ("SELECT d.yaer FROM @data d", "yaer (did you mean year?)"),
        ("SELECT year FROM @data WHERE carier = 'AA'", "carier (did you mean carrier?)"),
        ("SELECT upper(zzz) AS a, year FROM @data", "zzz."),
        ("WITH a AS (SELECT mnth FROM @data) SELECT * FROM a", "mnth (did you mean month?)"),
    ],
)
def test_a_column_that_is_not_declared_is_named_with_the_nearest_one(sql, named):
    with pytest.raises(SqlError) as caught:
        check_select(sql, COLUMNS)

    assert named in str(caught.value)


def test_columns_of_paths_and_rescued_data_are_columns_of_the_select() -> None:
    source = FileSource(
        roots="/in",
        format="json",
        columns="id int",
        partition_columns="d date",
        rescued_data_column="_rescued",
    )

    assert source.declared_columns is not None
    assert check_select("SELECT id, D, _rescued FROM @data", source.declared_columns) is None


@pytest.mark.parametrize(
    ("sql", "takes_all"),
    [
        ("SELECT * FROM @data", True),
        ("\n select *\n from @DATA\n where v > 0;", True),
        ("SELECT *, upper(v) AS u FROM @data JOIN t USING (id)", True),
        ("SELECT * EXCEPT (v) FROM @data", True),
        ("SELECT id, v FROM @data", False),
        ("SELECT id * 2 AS id FROM @data", False),
        ("SELECT * FROM (SELECT id, w AS v FROM @data)", False),
        ("SELECT *, 1 AS one FROM (SELECT id, w AS v FROM @data)", False),
        ("SELECT id, w AS v FROM (SELECT * FROM @data)", False),
    ],
)
def test_a_select_of_all_columns_is_known_by_its_beginning(sql: str, takes_all: bool) -> None:
    assert takes_all_columns(sql) == takes_all
