"""What a table of a database is, or a Delta table with a feed, and how it is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_scope.cli.init.dag_file import KEPT, Load, check_distinct, refusal
from airflow_provider_scope.delta.schema import MAX_DIGITS, names_in, text
from airflow_provider_scope.delta.write_rules import check_key
from airflow_provider_scope.exceptions import ChangeFeedError
from airflow_provider_scope.hooks import databases
from airflow_provider_scope.sources.cursor.databases import named, postgres_literal
from airflow_provider_scope.sources.feed.source import SourceLog
from airflow_provider_scope.sources.feed.state import DEFAULTS
from airflow_provider_scope.specs import CdfSource, Cursor, JdbcSource, Merge
from airflow_provider_scope.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.stores.protocol import Storage

_ROWS = 10_000
"""More rows than a catalog has of a table."""
_USUAL_SCALE = 18
_CHANGED = re.compile(r"updat|modif|(?<!ex)chang|mtime", re.IGNORECASE)
_FLAG = re.compile(r"(is_?)?(deleted|removed)(_at)?", re.IGNORECASE)
_WITHOUT_ZONE = ("timestamp without time zone", "date")
"""Types of PostgreSQL."""
_BY_KEY = (
    "The key of the table says which row a changed one replaces. Rows that are deleted in the database stay: "
    "a cursor does not see that."
)
_BY_NOTHING = (
    "No column shows which rows are new: none is a time of the last change, or a key of ascending numbers. "
    "So each run loads all rows, and replaces those of the table. If there is such a column, name it in the "
    'cursor, and write Merge(strategy="upsert", primary_key=…).'
)


class Column(NamedTuple):
    name: str
    type: str
    """As the database names it."""
    kind: str
    """"whole", "number", "time", "text" or "other"."""
    is_required: bool = False
    """Whether it holds no NULL."""
    is_indexed: bool = False
    """Whether an index begins with it."""
    digits: tuple[int, int] | None = None
    """Of a number without precision: the most digits before and after the point."""
    unfit: str | None = None
    """Why its values can only be read as text; None if the table has a type for them."""


class DatabaseTable(NamedTuple):
    name: str
    """As SQL of the database names it."""
    columns: Sequence[Column]
    key: Sequence[str]
    """Empty if the database knows none."""
    time_zone: str = ""
    """In which the database takes times without a zone."""
    lag: int | None = None
    """Of a cursor of numbers."""


# ---- what is written ----


def database_load(conn_id: str, table: DatabaseTable) -> Load:
    """Choose how a table of a database is loaded.

    :raises InputError: It has no column that a cursor can have.
    """
    column, reason = _cursor(table)
    types = [(column.name, *_custom(column)) for column in table.columns if column.digits or column.unfit]
    flag = next((column.name for column in table.columns if _FLAG.fullmatch(column.name)), None)
    deletes = f" If {flag!r} marks deleted rows: hard_delete={flag!r} deletes them here, too." if flag else ""
    is_timed = bool(reason) and column.type in _WITHOUT_ZONE
    source = JdbcSource(
        conn_id=conn_id,
        table=table.name,
        cursor=Cursor(
            column=column.name,
            on_cursor_value_missing="raise" if column.is_required else "include",
            lag=table.lag if column.kind in ("whole", "number") else None,
        ),
        time_zone=table.time_zone if is_timed else "UTC",
        options={"customSchema": ", ".join(f"{quoted(name)} {kind}" for name, kind, _ in types)}
        if types
        else None,
    )
    facts = {
        "cursor": reason,
        "timed": column.name,
        "types": " ".join(f"{name!r}: {why}." for name, _, why in types),
        "write": f"{_BY_KEY}{deletes}" if reason else _BY_NOTHING,
    }
    return Load(
        subject="new and changed rows of a table" if reason else "the rows of a table",
        source=source,
        names=[column.name for column in table.columns],
        write=Merge(strategy="upsert", primary_key=table.key) if reason else "replace",
        facts=facts,
        also=("source.time_zone",) if is_timed else (),
    )


def _cursor(table: DatabaseTable) -> tuple[Column, str]:
    """Choose the column that shows which rows are new, and say why; any other has no reason.

    :raises InputError: No column has a type that a cursor can have.
    """
    changed = [column for column in table.columns if column.kind == "time" and _CHANGED.search(column.name)]
    if changed:
        column = max(changed, key=lambda column: (column.is_indexed, column.is_required))
        index = (
            "" if column.is_indexed else " No index begins with it, so each run reads the whole table there."
        )
        return column, (
            f"By its name, {column.name!r} ({column.type}) is the time of the last change of a row. A change "
            f"that does not set it is not loaded.{index}"
        )
    for column in table.columns:
        if [column.name] == [*table.key] and column.kind == "whole":
            return column, (
                f"{column.name!r} is the key, and taken to grow with each new row. Changes of older rows are "
                "not loaded: no name of a column looks like the time of the last change."
            )
    for column in table.columns:
        if column.kind != "other":
            return column, ""
    raise refusal(
        f"No column of {table.name} has a type that a cursor can have.",
        "load a `query` that computes one, as in JdbcSource(query=…)",
    )


def _custom(column: Column) -> tuple[str, str]:
    """Choose the type of a column for which the table has none, and say why."""
    if column.digits is None:
        return "STRING", f"{column.unfit}, so it is read as text"
    whole, scale = column.digits
    seen = (
        f"{column.type} without a precision, with up to {whole} digits before the point and {scale} after it"
    )
    for wide in (max(scale, _USUAL_SCALE), scale):
        if whole + wide <= MAX_DIGITS:
            return f"DECIMAL({MAX_DIGITS},{wide})", seen
    return "STRING", f"{seen}, which no decimal holds"


# ---- what is seen ----


def database_table_of(conn_id: str, name: str, key: Sequence[str]) -> DatabaseTable:
    """Look at a table of a database.

    :param name: As a user writes it, with or without its schema.
    :param key: The columns that identify a row; none are those that the database knows.
    :raises ConnectionMissingError: Airflow has no such connection.
    :raises InputError: It has no such table, or no key, or it is of a kind that is not known here.
    :raises SourceUnreadableError: The database did not answer.
    """
    kind = databases.kind_of(conn_id)
    if kind not in _TABLES:
        raise refusal(
            f"The connection {conn_id} is of a type whose databases cannot be looked at.",
            "name one of the type postgres or sqlite; or write the Dag file yourself, with a JdbcSource",
        )
    table = _TABLES[kind](partial(databases.ask, conn_id), name)
    names = [column.name for column in table.columns]
    check_distinct(names)
    return table._replace(key=_key(table.name, names, key or table.key))


def _key(table: str, columns: Sequence[str], key: Sequence[str]) -> list[str]:
    """Return the columns of a key as the table spells them.

    :raises InputError: There is no key, or a column of it is none of the table's.
    """
    if not key:
        raise refusal(
            f"{table} has no key, so nothing says which row a changed one replaces. Its columns: "
            f"{', '.join(columns)}.",
            f"name the columns that identify a row, such as --key {columns[0]} (several: --key a --key b)",
        )
    spelled = {column.lower(): column for column in columns}
    for name in key:
        if name.lower() not in spelled:
            raise refusal(
                f"{table} has no column {name!r}. Its columns: {', '.join(columns)}.", "correct --key"
            )
    return [spelled[name.lower()] for name in key]


def _chosen(name: str, tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Choose the table that has a name exactly, or else the only one that has it but for letter case.

    :raises InputError: There is none, or several differ in letter case.
    """
    exact = [table for table in tables if table["is_exact"]]
    chosen = exact or tables
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(str(table["table"]) for table in chosen)
    raise refusal(
        f"The database has several tables {name!r}: {names}."
        if chosen
        else f"The database has no table {name!r} that its login sees.",
        "write its name as schema.table, with the capitals that the database shows",
    )


Ask = Callable[[str, int], "list[dict[str, Any]]"]
"""Runs a query, and returns so many rows at the most: column -> value."""

# ---- PostgreSQL ----

_POSTGRES_KINDS = {
    **dict.fromkeys(("smallint", "integer", "bigint"), "whole"),
    **dict.fromkeys(("real", "double precision", "numeric"), "number"),
    **dict.fromkeys((*_WITHOUT_ZONE, "timestamp with time zone"), "time"),
    **dict.fromkeys(("text", "character varying", "uuid"), "text"),
}
_POSTGRES_TABLES = """
SELECT c.oid::text AS oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS table,
  n.nspname || '.' || c.relname = {name} OR c.relname = {name} AS is_exact
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND (lower(n.nspname || '.' || c.relname) = lower({name})
    OR (lower(c.relname) = lower({name}) AND pg_table_is_visible(c.oid)))"""
_POSTGRES_COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS is_required,
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indpred IS NULL
    AND i.indkey[0] = a.attnum) AS is_indexed,
  (SELECT array_position(i.indkey::int2[], a.attnum) FROM pg_index i
    WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
      AND i.indexprs IS NULL AND i.indnatts = i.indnkeyatts
      AND NOT EXISTS (SELECT FROM pg_attribute k WHERE k.attrelid = i.indrelid
        AND k.attnum = ANY (i.indkey) AND NOT k.attnotnull)
    ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1) AS position
FROM pg_attribute a WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""


def _of_postgres(ask: Ask, name: str) -> DatabaseTable:
    table = _chosen(name, ask(_POSTGRES_TABLES.format(name=postgres_literal("string", name)), _ROWS))
    rows = ask(_POSTGRES_COLUMNS.format(oid=int(table["oid"])), _ROWS)
    free = [row["name"] for row in rows if row["type"] == "numeric"]
    digits = _postgres_digits(ask, table["table"], free) if free else {}
    columns = []
    for row in rows:
        plain, _, size = str(row["type"]).partition("(")
        # A zone may follow the size: timestamp(3) with time zone.
        plain = f"{plain.strip()} {size.partition(')')[2].strip()}".strip()
        precision = int(size.partition(",")[0].strip(")")) if plain == "numeric" and size else 0
        unfit = f"{row['type']} has more digits than a decimal" if precision > MAX_DIGITS else None
        if row["name"] in free and digits[row["name"]] is None:
            unfit = "numeric with NaN or infinity"
        columns.append(
            Column(
                name=row["name"],
                type=plain,
                kind="other" if unfit else _POSTGRES_KINDS.get(plain, "other"),
                is_required=bool(row["is_required"]),
                is_indexed=bool(row["is_indexed"]),
                digits=digits.get(row["name"]),
                unfit=unfit,
            )
        )
    key = sorted((row["position"], row["name"]) for row in rows if row["position"] is not None)
    (zone,) = ask("SELECT current_setting('TimeZone') AS zone", 1)
    return DatabaseTable(table["table"], columns, [column for _, column in key], zone["zone"])


def _postgres_digits(ask: Ask, table: str, names: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    """Find the most digits of numbers without precision: one scan. None for a column with NaN or infinity."""
    values = ", ".join(
        f"coalesce(max(length(trunc(abs({column}))::text)), 0) AS w{number}, "
        f"coalesce(max(scale({column})), 0) AS s{number}, "
        f"count(*) FILTER (WHERE {column}::text ~ '[A-Za-z]') AS o{number}"
        for number, column in enumerate(map(named, names))
    )
    (row,) = ask(f"SELECT {values} FROM {table}", 1)  # noqa: S608 - names are quoted
    return {
        name: None if row[f"o{number}"] else (int(row[f"w{number}"]), int(row[f"s{number}"]))
        for number, name in enumerate(names)
    }


# ---- SQLite ----

_SQLITE_TYPES = (("whole", ("INT",)), ("time", ("CHAR", "CLOB", "TEXT", "DATE", "TIME")))
"""Kind -> parts of the declared types that it has, in the order in which they are looked for. Others are
numbers. Times are texts, and any text may be one."""


def _of_sqlite(ask: Ask, name: str) -> DatabaseTable:
    literal = _text(name.removeprefix("main."))
    tables = ask(
        f"SELECT name, name = {literal} AS is_exact FROM sqlite_master "  # noqa: S608 - a literal
        f"WHERE type IN ('table', 'view') AND lower(name) = lower({literal})",
        _ROWS,
    )
    chosen = _chosen(name, [{**table, "table": named(table["name"])} for table in tables])
    literal, table = _text(chosen["name"]), chosen["table"]
    rows = ask(f'SELECT name, type, "notnull", pk FROM pragma_table_info({literal})', _ROWS)  # noqa: S608
    indexes = ask(
        'SELECT l.name AS "index", l."unique", l.partial, i.seqno, i.name '  # noqa: S608 - a literal
        f"FROM pragma_index_list({literal}) l, pragma_index_info(l.name) i ORDER BY l.seq DESC, i.seqno",
        _ROWS,
    )
    names = [row["name"] for row in rows]
    # No column holds values of its declared type alone.
    kinds = ", ".join(
        f"group_concat(DISTINCT typeof({named(column)})) AS t{n}" for n, column in enumerate(names)
    )
    (stored,) = ask(f"SELECT {kinds} FROM {table}", 1)  # noqa: S608 - names are quoted
    stored_kinds = {column: {*str(stored[f"t{n}"] or "").split(",")} for n, column in enumerate(names)}
    indexed = {row["name"] for row in indexes if not row["partial"] and row["seqno"] == 0}
    columns = [_sqlite_column(row, stored_kinds[row["name"]], indexed) for row in rows]
    required = {column.name for column in columns if column.is_required}
    keys = [[row["name"] for row in sorted(rows, key=lambda row: row["pk"]) if row["pk"]]]
    unique = dict.fromkeys(row["index"] for row in indexes if row["unique"] and not row["partial"])
    keys += [[row["name"] for row in indexes if row["index"] == index] for index in unique]
    # A key of SQLite may hold NULL, unless its columns are NOT NULL or it is the number of the row.
    key = next((key for key in keys if key and required.issuperset(key)), [])
    return DatabaseTable(table, columns, key, lag=0)


def _sqlite_column(row: dict[str, Any], stored: set[str], indexed: set[str]) -> Column:
    declared = str(row["type"]).upper()
    kind = next((kind for kind, parts in _SQLITE_TYPES if any(part in declared for part in parts)), "number")
    is_row_number = bool(row["pk"]) and declared == "INTEGER"
    fits = {"whole": {"integer"}, "time": {"text", "integer", "real"}, "number": {"integer", "real"}}[kind]
    unfitting = sorted(stored - fits - {"null", ""})
    unfit = f"{declared or 'no type'} with values of the type {', '.join(unfitting)}" if unfitting else None
    return Column(
        name=row["name"],
        type=declared,
        kind="other" if unfit or "BLOB" in declared else kind,
        is_required=bool(row["notnull"]) or is_row_number,
        is_indexed=row["name"] in indexed or is_row_number,
        unfit=None if "BLOB" in declared else unfit,
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_TABLES: dict[str, Callable[[Ask, str], DatabaseTable]] = {"postgresql": _of_postgres, "sqlite": _of_sqlite}

# ---- feeds ----


def feed_of(table: str, uri: str, storage: Storage, key: Sequence[str]) -> Load:
    """Look at a Delta table with a change data feed.

    :param table: As it was named.
    :param uri: Its canonical URI.
    :param key: The columns that identify a row: a Delta table does not know them.
    :raises ChangeFeedError: It has no feed.
    :raises InputError: No key is named, or none that the table has.
    """
    log = SourceLog.of(uri, storage)
    schema = log.metadata.schema
    if not log.metadata.has_feed:
        raise ChangeFeedError(
            f"The Delta table {table} has no change data feed, so it does not say which rows changed.",
            kept=KEPT,
            do=f"turn the feed on: ALTER TABLE delta.{quoted(table)} SET TBLPROPERTIES "
            "(delta.enableChangeDataFeed = true). Or load the table by a column that grows: write the "
            "Dag file yourself, with TableSource(table=…, cursor=…)",
        )
    columns = _key(table, [field.name for field in schema.fields], key)
    kinds = {field.name: text(field.kind) for field in schema.fields}
    for name in columns:
        check_key("--key", name, kinds[name], table)
    facts = {
        "version": log.newest,
        "kept": "; ".join(
            f"{name} is {value!r}" for name, value in {**DEFAULTS, **log.metadata.kept}.items()
        ),
        "write": "The key, as it was named: each value belongs to one row of the source.",
    }
    return Load(
        subject="the changes of a Delta table",
        source=CdfSource(table=table, full_load=True),
        names=list(names_in(schema)),
        write=Merge(strategy="upsert", primary_key=columns),
        facts=facts,
        also=("source.deletes",),
    )
