"""Where a database is, and as which user Spark reads it, from an Airflow connection."""

from __future__ import annotations

import logging
import re
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_scope.exceptions import InputError, SourceUnreadableError, mask
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.sources.cursor.databases import CONF

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.common.compat.sdk import Connection

logger = logging.getLogger(__name__)

_POSTGRES = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options", "target_session_attrs")
"""Fields of the extra of a PostgreSQL connection that mean something to libpq, and its driver for Java."""
_OF_MYSQL = {
    "connectionTimeZone": "UTC",
    "forceConnectionTimeZoneToSession": "true",
    "tinyInt1isBit": "false",
    "yearIsDateType": "false",
    "useCursorFetch": "true",
}
"""Without these, its driver changes values."""
_RENAMED = {"target_session_attrs": "targetServerType"}
_SECRET = re.compile(r"password|passphrase|secret|token|/[^/@:?;]+@|//[^/@]*:[^/@]*@", re.IGNORECASE)
DRIVERS = {
    "postgresql": ("org.postgresql.Driver", "org.postgresql:postgresql:42.7.14"),
    "mysql": ("com.mysql.cj.jdbc.Driver", "com.mysql:mysql-connector-j:9.4.0"),
    "sqlite": ("org.sqlite.JDBC", "org.xerial:sqlite-jdbc:3.50.3.0"),
}
"""Kind of a database -> class of its driver, and Maven coordinates."""
_KINDS = {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """What Spark needs to read a database. Its properties hold a secret, and are not shown."""

    kind: str
    """"postgresql", "mysql", "sqlite", or "jdbc": any other one."""
    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    driver: str | None = None
    packages: tuple[str, ...] = ()
    """Maven coordinates of the driver."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def spark_conf(self) -> dict[str, str]:
        """Return the properties of the application; the one with the password has a name that Spark hides."""
        properties = {
            "kind": self.kind,
            "url": self.url,
            "user": self.user,
            "password": self.password,
            "driver": self.driver,
        }
        return {CONF + name: value for name, value in properties.items() if value}


def database_of(conn_id: str, parts: int = 1) -> Database:
    """Read a connection.

    :param parts: In how many parts the database is to be read.
    :raises ConnectionMissingError: Airflow has none of this id.
    :raises InputError: It is of a type that is not known, or lacks something, or its database does not let
        several connections read one snapshot.
    """
    database = _database_of(connection_of(conn_id))
    if parts > 1 and database.kind != "postgresql":
        raise InputError(
            f"num_partitions={parts} is not possible with the connection {conn_id}, of the kind "
            f"{database.kind}: several connections can read one snapshot only on PostgreSQL. Parts that are "
            "read at different times can lose rows that change in between, and duplicate others.",
            kept="everything; nothing was read or written",
            do="leave num_partitions and partition_column out; max_rows_per_batch makes batches smaller",
        )
    return database


def kind_of(conn_id: str) -> str:
    """Return the kind of a connection's database; it is "jdbc" wherever the URL of such a connection leads.

    :raises ConnectionMissingError: Airflow has none of this id.
    """
    return _KINDS.get(connection_of(conn_id).conn_type or "", "jdbc")


def fetch(conn_id: str, sql: str, count: int) -> list[dict[str, Any]] | None:
    """Ask a database like ``ask``; None if it did not answer: Spark asks it then, and reports its error."""
    try:
        return ask(conn_id, sql, count)
    except SourceUnreadableError as err:
        logger.info("Spark has to ask the database whether there are new rows: %s", err.what)
        return None


def ask(conn_id: str, sql: str, count: int) -> list[dict[str, Any]]:
    """Ask a database through Airflow's hook, by its own driver and without Spark.

    :param count: How many rows to fetch at the most.
    :return: Column -> value of each row.
    :raises SourceUnreadableError: The database did not answer, or the provider for it is not installed.
    """
    connection = connection_of(conn_id)
    if connection.conn_type == "sqlite" and not Path(connection.host or "").is_file():
        # Its hook would make an empty database.
        raise _no_answer(conn_id, f"There is no database file {connection.host}", "correct its host")
    try:
        hook = connection.get_hook()  # type: ignore[no-untyped-call]
    except Exception as err:  # a provider may be missing, or be of the user's own: it may raise anything
        raise _no_answer(
            conn_id,
            f"The provider for connections of the type {connection.conn_type!r} cannot be used "
            f"({type(err).__name__})",
            f"install it, such as apache-airflow-providers-{connection.conn_type}",
        ) from err
    try:
        with closing(hook.get_conn()) as opened, closing(opened.cursor()) as cursor:
            cursor.execute(sql)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(count)]
    except Exception as err:  # each driver has its own
        reason = mask(str(err).strip().partition("\n")[0], connection.password or "")
        raise _no_answer(
            conn_id,
            f"The database of the connection {conn_id} did not answer ({type(err).__name__}: {reason})",
            "check that it runs, and that host, port, login and password are right",
        ) from err


def _no_answer(conn_id: str, what: str, do: str) -> SourceUnreadableError:
    return SourceUnreadableError(
        f"{what}.", kept="everything; nothing was read or written", do=f"{do}: the connection is {conn_id}"
    )


def _database_of(connection: Connection) -> Database:
    kind = _KINDS.get(connection.conn_type or "")
    if kind is None:
        return _generic(connection)
    driver, package = DRIVERS[kind]
    return Database(
        kind=kind,
        url={"postgresql": _postgres, "mysql": _mysql, "sqlite": _sqlite}[kind](connection),
        user=connection.login if kind != "sqlite" else None,
        password=connection.password if kind != "sqlite" else None,
        driver=driver,
        packages=(package,),
    )


def _postgres(connection: Connection) -> str:
    extra = connection.extra_dejson
    if extra.get("iam"):
        raise _bad(connection, "iam", "a password: AWS tokens are not supported")
    words = {_RENAMED.get(name, name): str(extra[name]) for name in _POSTGRES if extra.get(name)}
    words["ApplicationName"] = "airflow-provider-scope"
    return _server("postgresql", 5432, connection, words)


def _mysql(connection: Connection) -> str:
    words = dict(_OF_MYSQL)
    mode = connection.extra_dejson.get("ssl_mode") or connection.extra_dejson.get("sslMode")
    if mode:
        words["sslMode"] = str(mode).upper().replace("-", "_")
    return _server("mysql", 3306, connection, words)


def _server(kind: str, port: int, connection: Connection, words: Mapping[str, str]) -> str:
    if not connection.host:
        raise _bad(connection, "no host", "the database's host")
    if not connection.schema:
        raise _bad(connection, "no schema", "the database's name in the field schema")
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in words.items())
    return f"jdbc:{kind}://{host}:{connection.port or port}/{quote(str(connection.schema))}?{query}"


def _sqlite(connection: Connection) -> str:
    path = connection.host or ""
    if not path.startswith("/"):
        raise _bad(connection, f"host={path!r}", "the absolute path of the database's file as host")
    # Read only: a load never makes an empty database where a path is wrong.
    return f"jdbc:sqlite:file:{quote(path)}?mode=ro"


def _generic(connection: Connection) -> Database:
    if connection.conn_type != "jdbc":
        raise _bad(
            connection,
            f"the type {connection.conn_type!r}",
            "postgres, mysql, sqlite, or jdbc with the URL as host",
        )
    url, extra = connection.host or "", connection.extra_dejson
    if not url.startswith("jdbc:"):
        raise _bad(connection, "another host", "the URL as host: jdbc:…")
    if _SECRET.search(url):
        # Not the URL: it holds a secret.
        raise _bad(connection, "a secret in its URL", "user and password in their own fields")
    kind = next((kind for kind in DRIVERS if url.startswith(f"jdbc:{kind}:")), "jdbc")
    if kind == "mysql":
        given = {word.partition("=")[0].lower() for word in url.partition("?")[2].split("&")}
        words = [f"{name}={value}" for name, value in _OF_MYSQL.items() if name.lower() not in given]
        url += ("&" if "?" in url else "?") + "&".join(words)
    driver, package = DRIVERS.get(kind, (None, None))
    packages = extra.get("packages") or ([package] if package else [])
    return Database(
        kind=kind,
        url=url,
        user=connection.login or None,
        password=connection.password or None,
        driver=extra.get("driver_class") or driver,
        packages=tuple(packages.split(",") if isinstance(packages, str) else packages),
    )


def _bad(connection: Connection, has: str, expected: str) -> InputError:
    return InputError(
        f"The connection {connection.conn_id} has {has}: expected {expected}.",
        kept="everything; nothing was read or written",
        do="correct the connection",
    )
