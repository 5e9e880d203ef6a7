"""Compiling and running the scripts of jobs: rows as Arrow tables, and Delta tables through ``deltalake``."""

from __future__ import annotations

import json
import re
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyarrow import csv, parquet

from airflow_provider_scope.emulator.csharp import ExpressionReader, Value, condition
from airflow_provider_scope.emulator.parse import (
    AddColumn,
    AlterTable,
    Assign,
    CreateTable,
    DeclareTable,
    Delete,
    Extract,
    Fragment,
    Insert,
    parse,
)
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import KEYWORDS, ScriptError, parse_type, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from airflow_provider_scope.emulator.csharp import Of
    from airflow_provider_scope.emulator.files import Account
    from airflow_provider_scope.emulator.parse import Column, Statement

# ---- queries: SELECT … FROM @rowset [WHERE …], the shapes that dbt-scope's models have ----


@dataclass(frozen=True, slots=True)
class Query:
    """A query that is ready to run."""

    rowset: str
    items: dict[str, Value]
    """Its columns, in order."""
    where: Of | None

    @property
    def columns(self) -> dict[str, str]:
        """Name -> SCOPE type."""
        return {name: value.type for name, value in self.items.items()}

    def run(self, table: pa.Table) -> pa.Table:
        """Return the rows of the query.

        :raises InputError: An expression fails for a row.
        """
        if self.where is not None:
            table = table.filter(pa.array([self.where(row) for row in table.to_pylist()], pa.bool_()))
        is_computed = any(value.column is None for value in self.items.values())
        rows = table.to_pylist() if is_computed else []
        columns = [
            table[value.column]
            if value.column is not None
            else pa.array([value.of(row) for row in rows], arrow_type(value.type))
            for value in self.items.values()
        ]
        return pa.table(columns, names=list(self.items))


def compile_query(query: Fragment, rowsets: Mapping[str, Mapping[str, str]]) -> Query:
    """Compile a SELECT.

    :param rowsets: Rowset without its ``@`` -> column -> SCOPE type.
    :raises ScriptError: The query is not of the supported shapes; the error has a code, a place and advice.
    """
    for token in query.tokens:
        if token.kind in ("parameter", "system"):
            problem = f"{token.text} is not supported inside a query"
            refuse(token, token.kind, problem, "write the value itself")
    # The rowset comes first: the items before it need its columns.
    start = next((number for number, token in enumerate(query.tokens) if token.is_keyword("FROM")), None)
    if start is None:
        refuse(query.tokens[-1], "no-from", "the query has no FROM", "write SELECT … FROM @data")
    rowset = query.tokens[start + 1]
    if rowset.kind != "variable":
        problem = f"{rowset.text!r} is not a rowset"
        refuse(rowset, "not-a-rowset", problem, "select from a rowset such as @data")
    if rowset.value not in rowsets:
        names = ", ".join(f"@{name}" for name in rowsets)
        refuse(rowset, "unknown-rowset", f"{rowset.text} is not assigned above", f"use one of {names}")
    try:
        return _QueryReader(query.tokens, rowsets[rowset.value]).query()
    except RecursionError as error:
        raise ScriptError("too-deep", 1, 1, "the query nests too deeply", "use fewer brackets") from error


class _QueryReader(ExpressionReader):
    def query(self) -> Query:
        self.expect("SELECT")
        items: dict[str, Value] = {}
        names: set[str] = set()
        while not items or self.accept(","):
            token = self.token
            for name, value in self.item():
                if name.lower() in names:
                    refuse(token, "ambiguous", f"the query has two columns {name}", "rename one with AS")
                names.add(name.lower())
                items[name] = value
        self.expect("FROM")
        rowset = self.advance().value
        token = self.token
        where = self.expression() if self.accept("WHERE") else None
        if self.token.kind != "end":
            refuse(
                self.token,
                "not-supported",
                f"{self.token.text!r} is not supported",
                "use SELECT … FROM @rowset WHERE …: one rowset without an alias, no grouping, no sub-query",
            )
        return Query(rowset, items, condition(token, where) if where else None)

    def item(self) -> list[tuple[str, Value]]:
        token = self.token
        if self.accept("*"):
            named = (replace(token, kind="quoted", value=name) for name in self.columns)
            return [(column.value, self.column(column)) for column in named]
        value = self.expression()
        if value.kind in ("null", "char", "strings"):
            refuse(token, "no-type", "this item has no column type", "cast it, for example (int?)null")
        name = value.column
        if self.accept("AS"):
            alias = self.advance()
            if alias.kind not in ("name", "quoted") or alias.is_keyword(*KEYWORDS):
                refuse(alias, "syntax", "AS needs a name", "write x AS name")
            name = alias.value
        if name is None:
            refuse(token, "no-alias", "this item has no name", "give it one with AS")
        return [(name, value)]


# ---- scripts ----


def compile_script(script: str) -> list[tuple[Statement, Query | None]]:
    """Return the statements of a script, in order, each with its query if it has one.

    :raises ScriptError: The text is not a script of supported statements and queries.
    """
    rowsets: dict[str, dict[str, str]] = {}
    compiled: list[tuple[Statement, Query | None]] = []
    for statement in parse(script):
        query = None
        if isinstance(statement, Assign | Insert):
            query = compile_query(statement.select, rowsets)
        if isinstance(statement, Extract):
            rowsets[statement.rowset] = _types_of(statement)
        elif isinstance(statement, Assign) and query:
            rowsets[statement.rowset] = query.columns
        compiled.append((statement, query))
    return compiled


class ScriptRunner:
    """Runs the scripts of one account, several at a time, but one at a time on each table."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._locks: dict[Path, threading.Lock] = {}
        """Table -> held while a script runs on it."""

    def execute(self, job_id: str, script: str, is_cancelled: Callable[[], bool]) -> None:
        """Run a script to its end.

        :param is_cancelled: Called before each commit.
        :raises InputError: The script is to blame, or the job was cancelled.
        """
        compiled = compile_script(script)
        paths = {
            self._account.local(statement.location)
            for statement, _ in compiled
            if isinstance(statement, CreateTable | DeclareTable)
        }
        run = _Run(self._account, job_id, is_cancelled)
        with ExitStack() as locks:
            # Always in the same order, so that two scripts on the same two tables do not deadlock.
            for path in sorted(paths):
                locks.enter_context(self._locks.setdefault(path, threading.Lock()))
            for number, (statement, query) in enumerate(compiled, start=1):
                run.step(number, statement, query)


class _Run:
    """One run of a script.

    Every commit of a job carries the transaction ``scope-job-<id>`` with the number of its statement as
    version. A script that is run again after a kill of the emulator skips the statements that are in the
    table, so a job commits once.
    """

    def __init__(self, account: Account, job_id: str, is_cancelled: Callable[[], bool]) -> None:
        self._account = account
        self._job_id = job_id
        self._is_cancelled = is_cancelled
        self._app = f"scope-job-{job_id}"
        self._tables: dict[str, DeltaTable] = {}
        self._declared: dict[str, tuple[Column, ...]] = {}
        """Table -> its columns as the script declares them."""
        self._rowsets: dict[str, pa.Table] = {}

    def step(self, number: int, statement: Statement, query: Query | None) -> None:
        """Run a statement.

        :raises InputError: The script is to blame, or the job was cancelled.
        """
        self._check_cancelled()
        match statement:
            case CreateTable():
                self._declared[statement.name] = statement.columns
                self._tables[statement.name] = self._created(statement)
            case DeclareTable():
                self._tables[statement.name] = self._opened(statement.location)
            case Extract():
                self._rowsets[statement.rowset] = _extract(self._account, statement)
            case Assign() if query:
                self._rowsets[statement.rowset] = query.run(self._rowsets[query.rowset])
            case AlterTable() | AddColumn() | Delete() | Insert():
                table = self._table(statement.table)
                newest = table.transaction_version(self._app)
                if newest is None or newest < number:
                    self._change(table, statement, query, self._commit(Transaction(self._app, number)))

    def _change(
        self,
        table: DeltaTable,
        statement: AlterTable | AddColumn | Delete | Insert,
        query: Query | None,
        commit: CommitProperties,
    ) -> None:
        match statement:
            case AlterTable():
                properties = {key: _property(value) for key, value in statement.properties}
                table.alter.set_table_properties(
                    properties, raise_if_not_exists=False, commit_properties=commit
                )
            case AddColumn():
                _add_column(table, statement, commit)
            case Delete():
                table.delete(commit_properties=commit)
            case Insert() if query:
                selected = query.run(self._rowsets[query.rowset])
                rows = _rows_to_insert(table, statement, selected)
                _check_nulls(rows, self._declared.get(statement.table, ()), "INSERT")
                self._check_cancelled()
                write_deltalake(table, rows, mode="append", commit_properties=commit)

    def _check_cancelled(self) -> None:
        if self._is_cancelled():
            raise InputError("The job was cancelled.")

    def _commit(self, *transactions: Transaction) -> CommitProperties:
        """Return the properties of a commit. Without a transaction, a statement may be carried out twice."""
        metadata = {"userMetadata": json.dumps({"scopeJobId": self._job_id})}
        return CommitProperties(custom_metadata=metadata, app_transactions=list(transactions))

    def _created(self, statement: CreateTable) -> DeltaTable:
        path = str(self._account.local(statement.location))
        if not DeltaTable.is_deltatable(path):
            DeltaTable.create(
                path,
                Schema.from_arrow(_arrow_schema(statement.columns)),
                mode="ignore",
                partition_by=list(statement.partition_by) or None,
                commit_properties=self._commit(),
            )
        return self._opened(statement.location)

    def _opened(self, location: str) -> DeltaTable:
        path = self._account.local(location)
        try:
            return DeltaTable(str(path))
        except TableNotFoundError as err:
            raise InputError(f"There is no table at {path.name}.") from err

    def _table(self, name: str) -> DeltaTable:
        """Return a table of the script as it is now: others may have changed it."""
        table = self._tables.get(name)
        if table is None:
            raise InputError(f"Table {name} is not declared.")
        table.update_incremental()
        return table


def _rows_to_insert(table: DeltaTable, statement: Insert, selected: pa.Table) -> pa.Table:
    """Return the rows of an INSERT, with the columns of the table."""
    schema = pa.schema(table.schema().to_arrow())
    names = list(statement.columns) or schema.names
    for name in names:
        if name not in schema.names:
            raise InputError(f"The table has no column {name}.")
    if len(names) != selected.num_columns:
        raise InputError(
            f"INSERT takes {len(names)} columns, {', '.join(names)}, and its SELECT gives "
            f"{selected.num_columns}."
        )
    given = dict(zip(names, selected.columns, strict=True))
    columns = [given.get(field.name, pa.nulls(selected.num_rows, field.type)) for field in schema]
    return _cast(pa.table(columns, names=schema.names), schema, "INSERT")


def _cast(rows: pa.Table, schema: Any, place: str) -> pa.Table:
    for column, field in zip(rows.schema, schema, strict=True):
        # C# has no conversion that it makes by itself; Arrow would make a 7 of "007".
        if not pa.types.is_null(column.type) and _family(column.type) != _family(field.type):
            raise InputError(f"{place}: {field.name} is of type {field.type}, and not {column.type}.")
    try:
        return rows.cast(schema)
    except (pa.ArrowException, ValueError) as err:
        raise InputError(f"{place}: {err}") from err


def _family(kind: pa.DataType) -> str:
    """Return what the types have in common between which Arrow converts values without changing them."""
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    for family in ("boolean", "temporal", "nested"):
        if getattr(pa.types, f"is_{family}")(kind):
            return family
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return "number" if is_number else "bytes"


def _check_nulls(rows: pa.Table, columns: tuple[Column, ...], place: str) -> None:
    for column in columns:
        if not column.nullable and rows[column.name].null_count:
            raise InputError(f"{place}: column {column.name} of type {column.type} cannot hold null.")


def _add_column(table: DeltaTable, statement: AddColumn, commit: CommitProperties) -> None:
    name = statement.column.name
    if name.lower() not in (field.name.lower() for field in table.schema().fields):
        added = Schema.from_arrow(_arrow_schema((statement.column,)))
        table.alter.add_columns(added.fields, commit_properties=commit)


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- the files of an EXTRACT: parquet or CSV content, whatever their names ----

_VIRTUAL = {
    "FILE.URI": "string",
    "FILE.LENGTH": "long?",
    "FILE.CREATED": "DateTime?",
    "FILE.MODIFIED": "DateTime?",
}
"""Function of an EXTRACT -> its type in SCOPE."""


def _types_of(statement: Extract) -> dict[str, str]:
    """Return the columns of an EXTRACT -> SCOPE type, in order."""
    types = {column.name: column.type for column in statement.columns}
    return types | {column.name: _VIRTUAL[column.function] for column in statement.virtual}


def _extract(account: Account, statement: Extract) -> pa.Table:
    schema, types = _arrow_schema(statement.columns), _types_of(statement)
    pieces = [pa.schema([(name, arrow_type(kind)) for name, kind in types.items()]).empty_table()]
    for uri in statement.files:
        path, units = _stream_files(account, uri)
        status = path.stat()
        virtual_values = {
            "FILE.URI": uri,
            "FILE.LENGTH": status.st_size + sum(unit.stat().st_size for unit in units),
            "FILE.CREATED": None,  # not every disk gives it: unknown rather than guessed
            "FILE.MODIFIED": status.st_mtime_ns // 1_000_000 * 1_000,
        }
        for part in units or [path]:
            if part.stat().st_size:
                rows = _cast(_read_rows(part, uri, schema), schema, uri)
                _check_nulls(rows, statement.columns, uri)
                for column in statement.virtual:
                    value = pa.scalar(virtual_values[column.function], arrow_type(types[column.name]))
                    rows = rows.append_column(column.name, pa.repeat(value, rows.num_rows))
                pieces.append(rows)
    return pa.concat_tables(pieces)


def _stream_files(account: Account, uri: str) -> tuple[Path, list[Path]]:
    """Return a file, and the units that hold its rows if it is a manifest.

    ``X.ss`` with a folder ``X`` beside it is a manifest; the rows are in the ``.du`` files of the folder.
    """
    path = account.local(uri)
    if not path.is_file():
        raise InputError(f"Input stream {uri} does not exist.")
    folder = path.with_suffix("")
    if path.suffix != ".ss" or not folder.is_dir():
        return path, []
    return path, sorted(unit for unit in folder.rglob("*.du") if unit.is_file() and account.contains(unit))


def _read_rows(part: Path, uri: str, schema: pa.Schema) -> pa.Table:
    try:
        with part.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        if is_parquet:
            rows = parquet.read_table(part, partitioning=None)
        else:
            # With the types of the script: inferred types would turn the text "007" into a number and back.
            types = {field.name: field.type for field in schema}
            options = csv.ConvertOptions(column_types=types, strings_can_be_null=True, null_values=[""])
            # Without it, a text with a line end is cut where a block of the file ends, without an error.
            lines = csv.ParseOptions(newlines_in_values=True)
            rows = csv.read_csv(part, parse_options=lines, convert_options=options)
    except (pa.ArrowException, OSError) as err:
        raise InputError(f"{uri} cannot be read: {err}.") from err
    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise InputError(f"{uri} has no column {missing[0]}.")
    return rows.select(schema.names)


# ---- SCOPE's types in Arrow ----

_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(20,0)": pa.decimal128(20, 0),
    "decimal(38,18)": pa.decimal128(38, 18),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_type(kind: str) -> pa.DataType:
    return _arrow(parse_type(kind).spark)


def _arrow(spark: str) -> pa.DataType:
    kind, _, inner = spark.removesuffix(">").partition("<")
    if kind == "array":
        return pa.list_(_arrow(inner))
    if kind == "map":
        # A key has no comma, unless it is a decimal.
        key, value = re.split(r",(?![^(]*\))", inner, maxsplit=1)
        return pa.map_(_arrow(key), _arrow(value))
    return _ARROW[spark]


def _arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the columns as Arrow's, all nullable, as in Spark's tables."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])
