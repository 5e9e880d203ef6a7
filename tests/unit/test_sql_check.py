"""Misspelt columns are found when the Dag is parsed; what is not certain is left to Spark."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import SqlError
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.specs.ingest import check_select

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
