"""A connection of Airflow becomes a database that Spark reaches, and its secret is not shown."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.databases import Database, database_of, fetch

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "planted-password"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(**fields: Any) -> Database:
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"password": SECRET, "login": "clerk", **fields}))
        return database_of("shop")

    return make


def test_postgres(made: Any) -> None:
    found = made(
        conn_type="postgres",
        host="db.example",
        schema="a b",
        extra={"sslmode": "verify-full", "sslrootcert": "/etc/a&b.pem", "cursor": "dictcursor"},
    )
    assert found.url == (
        "jdbc:postgresql://db.example:5432/a%20b?sslmode=verify-full&sslrootcert=%2Fetc%2Fa%26b.pem"
        "&ApplicationName=airflow-provider-scope"
    )
    assert found.spark_conf["spark.airflow_provider_scope.jdbc.password"] == SECRET
    assert found.spark_conf["spark.airflow_provider_scope.jdbc.user"] == "clerk"
    assert found.packages == ("org.postgresql:postgresql:42.7.14",)


def test_mysql(made: Any) -> None:
    found = made(conn_type="mysql", host="::1", port=3307, schema="shop", extra={"ssl_mode": "verify-ca"})
    assert found.url.startswith("jdbc:mysql://[::1]:3307/shop?connectionTimeZone=UTC&")
    assert found.url.endswith("&sslMode=VERIFY_CA")


def test_sqlite_is_read_only(made: Any) -> None:
    found = made(conn_type="sqlite", host="/data/shop ?.db")
    assert found.url == "jdbc:sqlite:file:/data/shop%20%3F.db?mode=ro"
    assert SECRET not in found.spark_conf.values()


def test_any_other_by_its_url(made: Any) -> None:
    found = made(
        conn_type="jdbc",
        host="jdbc:h2:/data/shop",
        extra={"driver_class": "org.h2.Driver", "packages": "com.h2database:h2:2.4.240"},
    )
    assert (found.kind, found.url, found.driver) == ("jdbc", "jdbc:h2:/data/shop", "org.h2.Driver")
    assert found.packages == ("com.h2database:h2:2.4.240",)


def test_a_url_of_a_known_database_is_that_database(made: Any) -> None:
    found = made(conn_type="jdbc", host="jdbc:postgresql://db.example/shop")
    assert (found.kind, found.driver) == ("postgresql", "org.postgresql.Driver")


@pytest.mark.parametrize(("url", "separator"), [("jdbc:mysql://h/d", "?"), ("jdbc:mysql://h/d?a=b", "&")])
def test_a_url_of_mysql_gets_what_its_driver_needs_to_change_no_value(
    made: Any, url: str, separator: str
) -> None:
    found = made(conn_type="jdbc", host=url)
    words = "connectionTimeZone=UTC&forceConnectionTimeZoneToSession=true&tinyInt1isBit=false"
    assert found.url == f"{url}{separator}{words}&yearIsDateType=false&useCursorFetch=true"


def test_what_a_url_of_mysql_says_itself_stays(made: Any) -> None:
    url = "jdbc:mysql://h/d?tinyint1IsBit=true&forceConnectionTimeZoneToSession=true"
    words = "connectionTimeZone=UTC&yearIsDateType=false&useCursorFetch=true"
    assert made(conn_type="jdbc", host=url).url == f"{url}&{words}"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"conn_type": "http", "host": "x"}, "the type 'http'"),
        ({"conn_type": "postgres", "schema": "x"}, "no host"),
        ({"conn_type": "postgres", "host": "x"}, "no schema"),
        ({"conn_type": "postgres", "host": "x", "schema": "x", "extra": {"iam": True}}, "iam"),
        ({"conn_type": "sqlite", "host": "shop.db"}, "absolute path"),
        ({"conn_type": "jdbc", "host": "db.example"}, "the URL as host"),
        ({"conn_type": "jdbc", "host": f"jdbc:x://h/d?password={SECRET}"}, "a secret in its URL"),
        ({"conn_type": "jdbc", "host": f"jdbc:oracle:thin:a/{SECRET}@h:1521/d"}, "a secret in its URL"),
        ({"conn_type": "jdbc", "host": f"jdbc:x://a:{SECRET}@h/d"}, "a secret in its URL"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_without_its_secret(
    made: Any, fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError) as caught:
        made(**fields)
    assert told in str(caught.value)
    assert SECRET not in repr(caught.value) + str(caught.value)


def test_a_secret_is_not_shown(made: Any) -> None:
    assert SECRET not in repr(made(conn_type="postgres", host="x", schema="x"))


def test_a_database_is_asked_through_the_hook_of_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "shop é.db"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "sqlite", "host": str(file)}))
    assert fetch("shop", "SELECT 1", 1) is None
    assert not file.exists()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (n INTEGER, t TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL), (3, 'c')")
        connection.commit()

    assert fetch("shop", "SELECT * FROM t ORDER BY n", 2) == [{"n": 1, "t": "a"}, {"n": 2, "t": None}]
    with caplog.at_level("INFO"):
        assert fetch("shop", "SELECT * FROM no_such_table", 2) is None
    assert "did not answer (OperationalError: no such table: no_such_table)" in caplog.messages[-1]


def test_a_database_whose_provider_is_missing_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "no_such_type", "password": "planted"}))
    with caplog.at_level("INFO"):
        assert fetch("shop", "SELECT 1", 1) is None
    assert "The provider for connections of the type 'no_such_type' cannot be used" in caplog.text
    assert "planted" not in caplog.text
