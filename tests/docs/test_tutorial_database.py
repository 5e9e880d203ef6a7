"""The tutorial of a database is done as it stands there, with a PostgreSQL and an Airflow of its own."""

from __future__ import annotations

import shutil
import textwrap
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg2
import pytest
from deltalake import DeltaTable
from sqlalchemy.engine import make_url

from tests.docs.following import follow
from tests.docs.pages import DOCS, ROOT, blocks
from tests.real_airflow import postgres

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "tutorial_database.md"
EXAMPLE = ROOT / "dags_examples" / "example_database_tables_to_delta.py"


def test_the_dag_of_the_page_is_that_of_the_example() -> None:
    example = EXAMPLE.read_text()
    first, *task = blocks(PAGE.read_text(), "python")[0].text.partition("\n\n")

    assert f"\n{first}\n" in example
    assert textwrap.indent(task[1].rstrip(), "    ") in example


@pytest.mark.spark
@pytest.mark.jdbc
def test_the_commands_give_what_is_shown_and_the_tables_are_those_of_the_database(tmp_path: Path) -> None:
    if shutil.which("psql") is None:
        pytest.skip("psql is missing: install PostgreSQL's client")
    try:
        postgres.programs()
    except postgres.PostgresMissingError as err:
        pytest.skip(str(err))
    with postgres.postgres() as url:
        server = make_url(url)
        folder = str(tmp_path)
        compared = follow(
            PAGE,
            tmp_path,
            {
                "/tmp/flights": folder,
                '"host": "localhost", "port": 5432': f'"host": "{server.host}", "port": {server.port}',
                '"login": "postgres"': f'"login": "{server.username}"',
            },
            dag=lambda _: (EXAMPLE.name, EXAMPLE.read_text()),
            variables={
                "PGHOST": str(server.host),
                "PGPORT": str(server.port),
                "PGUSER": str(server.username),
            },
        )
        assert compared == 3
        with closing(
            psycopg2.connect(server.set(database="flights", drivername="postgresql").render_as_string())
        ) as there:
            for table, key in {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}.items():
                cursor = there.cursor()
                cursor.execute(f'SELECT * FROM {table} WHERE NOT deleted ORDER BY {key} COLLATE "C"')
                names = [column.name for column in cursor.description or ()]
                wanted = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
                found = DeltaTable(f"{folder}/lake/{table}").to_pyarrow_table().sort_by(key).to_pylist()
                assert found == wanted
                assert len(found) > 10
