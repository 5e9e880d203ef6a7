"""Values of SQLite, which holds no column to its type: each arrives as it is."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import warm

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.jdbc]


def test_texts_have_any_length_and_numbers_all_of_their_digits(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm.use(monkeypatch, spark)
    file = tmp_path / "shop.db"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    large = 2**40
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(
            "CREATE TABLE t (n INTEGER, t TEXT, v VARCHAR(2), c CHAR(5), c2 CLOB, i INT, f FLOAT)"
        )
        connection.execute("INSERT INTO t VALUES (1, 'any', 'longer', 'ab', 'text', ?, 0.1)", (large,))
        connection.execute("INSERT INTO t VALUES (2, '', NULL, 'abcdefg', NULL, -1, 1e300)")
        connection.commit()
    pipe = warm.Pipe(tmp_path, {"source": {"conn_id": "shop", "table": "t", "cursor": {"column": "n"}}})
    pipe.run()

    assert pipe.rows("n", "t", "v", "c", "c2", "i", "f") == [
        (1, "any", "longer", "ab", "text", large, 0.1),
        (2, "", None, "abcdefg", None, -1, 1e300),
    ]
