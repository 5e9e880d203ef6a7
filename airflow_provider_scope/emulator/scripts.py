"""Running the scripts of jobs: rows as Arrow tables, and real Delta tables through ``deltalake``."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from pyarrow import csv, parquet

from airflow_provider_scope.emulator.csharp import arrow_type
from airflow_provider_scope.emulator.files import Account, PathError
from airflow_provider_scope.emulator.parse import (
    AddColumn,
    AlterTable,
    Assign,
    CreateTable,
    DeclareTable,
    Delete,
    Extract,
    Insert,
    parse,
)
from airflow_provider_scope.emulator.query import compile_query
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.dialect import ScriptError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.emulator.parse import Column, Fragment, Statement


SYNTAX_ERROR = "E_CSC_USER_SYNTAXERROR"
"""The recorded code."""
VIRTUAL = {
    "FILE.URI": "string",
    "FILE.LENGTH": "long?",
    "FILE.CREATED": "DateTime?",
    "FILE.MODIFIED": "DateTime?",
}
"""Function of an EXTRACT -> its type in SCOPE."""


@dataclass(frozen=True, slots=True)
class Task:
    """The script of one job, to be run."""

    job_id: str
    script: str
    is_cancelled: Callable[[], bool]
    """Called before each commit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a script ended."""

    failure: str = ""
    """Why it failed; empty if it did not."""
    user_error: bool = True
    """Whether the script is to blame; otherwise it is the emulator."""


class ScriptFailedError(Exception):
    """The script is to blame: it names something that does not exist, or cannot be carried out."""


class ScriptRunner:
    """Runs the scripts of one account, several at a time, but one at a time on each table.

    Every commit of a job carries the transaction ``scope-job-<id>`` with the number of its statement as
    version. A script that is run again after a kill of the emulator skips the statements that are in the
    table, so a job commits once.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._tables = _Tables()

    def execute(self, task: Task) -> Outcome:
        """Run a script to its end; a failure is an outcome, not an exception."""
        try:
            statements = parse(task.script)
            paths = {
                self._account.local(statement.location)
                for statement in statements
                if isinstance(statement, CreateTable | DeclareTable)
            }
            run = _Run(self._account, task, self._tables)
            with ExitStack() as locks:
                # Always in the same order, so that two scripts on the same two tables do not deadlock.
                for path in sorted(paths):
                    locks.enter_context(self._tables.lock(path))
                for number, statement in enumerate(statements, start=1):
                    run.step(number, statement)
        except ScriptError as err:
            return Outcome(f"{SYNTAX_ERROR}: {err.what}")
        except InputError as err:
            return Outcome(err.what)
        except (ScriptFailedError, PathError) as err:
            return Outcome(str(err))
        return Outcome()


class _Tables:
    """The tables that scripts use, each opened once.

    Opening a table reads its whole log, which takes longer the more jobs there were. Updating an open table
    reads only the new part.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[Path, tuple[tuple[int, int], DeltaTable]] = {}

    def lock(self, path: Path) -> threading.Lock:
        with self._guard:
            return self._locks[path]

    def open(self, path: Path) -> DeltaTable:
        """Open a table, whose lock must be held.

        :raises ScriptFailedError: The table does not exist.
        """
        try:
            first_commit = (path / "_delta_log" / f"{0:020}.json").stat()
            # A table that was deleted and made again has another first commit.
            identity = (first_commit.st_ino, first_commit.st_mtime_ns)
            open_identity, open_table = self._open.get(path, (None, None))
            if open_table is not None and open_identity == identity:
                open_table.update_incremental()
                return open_table
            table = DeltaTable(str(path))
        except (FileNotFoundError, TableNotFoundError) as err:
            raise ScriptFailedError(f"There is no table at {path.name}.") from err
        self._open[path] = (identity, table)
        return table


@dataclass(frozen=True, slots=True)
class _Rowset:
    rows: pa.Table
    types: dict[str, str]
    """Column -> SCOPE type, in order."""


class _Run:
    """One run of a script."""

    def __init__(self, account: Account, task: Task, tables: _Tables) -> None:
        self._account = account
        self._task = task
        self._tables = tables
        self._app = f"scope-job-{task.job_id}"
        self._paths: dict[str, Path] = {}
        self._declared: dict[str, tuple[Column, ...]] = {}
        """Table -> its columns as the script declares them."""
        self._rowsets: dict[str, _Rowset] = {}

    def step(self, number: int, statement: Statement) -> None:
        """Run a statement.

        :raises ScriptFailedError: The script is to blame.
        """
        self._check_cancelled()
        match statement:
            case CreateTable():
                self._paths[statement.name] = self._account.local(statement.location)
                self._declared[statement.name] = statement.columns
                self._create(statement)
            case DeclareTable():
                self._paths[statement.name] = self._account.local(statement.location)
                self._table(statement.name)
            case Extract():
                self._rowsets[statement.rowset] = _extract(self._account, statement)
            case Assign():
                self._rowsets[statement.rowset] = self._select(statement.select)
            case AlterTable() | AddColumn() | Delete() | Insert():
                table = self._table(statement.table)
                newest = table.transaction_version(self._app)
                if newest is None or newest < number:
                    self._change(table, statement, self._commit(number))

    def _change(
        self, table: DeltaTable, statement: AlterTable | AddColumn | Delete | Insert, commit: CommitProperties
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
            case Insert():
                rows = self._rows_to_insert(table, statement)
                self._check_cancelled()
                write_deltalake(table, rows, mode="append", commit_properties=commit)

    def _check_cancelled(self) -> None:
        if self._task.is_cancelled():
            raise ScriptFailedError("The job was cancelled.")

    def _commit(self, number: int | None) -> CommitProperties:
        """Return the properties of a commit. Without a number, a statement may be carried out twice."""
        return CommitProperties(
            custom_metadata={"userMetadata": json.dumps({"scopeJobId": self._task.job_id})},
            app_transactions=[] if number is None else [Transaction(self._app, number)],
        )

    def _create(self, statement: CreateTable) -> None:
        path = self._paths[statement.name]
        if DeltaTable.is_deltatable(str(path)):
            return
        DeltaTable.create(
            str(path),
            Schema.from_arrow(arrow_schema(statement.columns)),
            mode="ignore",
            partition_by=list(statement.partition_by) or None,
            commit_properties=self._commit(None),
        )

    def _table(self, name: str) -> DeltaTable:
        path = self._paths.get(name)
        if path is None:
            raise ScriptFailedError(f"Table {name} is not declared.")
        return self._tables.open(path)

    def _rows_to_insert(self, table: DeltaTable, statement: Insert) -> pa.Table:
        """Return the rows of an INSERT, with the columns of the table."""
        rows = self._select(statement.select).rows
        schema = pa.schema(table.schema().to_arrow())
        positions = _select_positions(statement, rows.num_columns, schema.names)
        columns = [
            pa.nulls(rows.num_rows, field.type) if position is None else rows.column(position)
            for field, position in zip(schema, positions, strict=True)
        ]
        rows = _cast(pa.table(columns, names=schema.names), schema, "INSERT")
        _check_nulls(rows, self._declared.get(statement.table, ()), "INSERT")
        return rows

    def _select(self, select: Fragment) -> _Rowset:
        query = compile_query(select, {name: rowset.types for name, rowset in self._rowsets.items()})
        return _Rowset(query.run(self._rowsets[query.rowset].rows), query.columns)


def _select_positions(statement: Insert, count: int, columns: list[str]) -> list[int | None]:
    """Return for each column of a table the position of its column in the SELECT; None if it has none.

    :param count: The number of columns that the SELECT gives.
    :param columns: The columns of the table, in order.
    """
    if not statement.columns:
        if count != len(columns):
            raise ScriptFailedError(
                f"INSERT gives {count} columns, and the table has {len(columns)}: {', '.join(columns)}."
            )
        return list(range(count))
    if count != len(statement.columns):
        raise ScriptFailedError(
            f"INSERT names {len(statement.columns)} columns, and its SELECT gives {count}."
        )
    for name in statement.columns:
        if name not in columns:
            raise ScriptFailedError(f"The table has no column {name}.")
    return [statement.columns.index(name) if name in statement.columns else None for name in columns]


def _cast(rows: pa.Table, schema: Any, place: str) -> pa.Table:
    try:
        return rows.cast(schema)
    except (pa.ArrowException, ValueError) as err:
        raise ScriptFailedError(f"{place}: {err}") from err


def _check_nulls(rows: pa.Table, columns: tuple[Column, ...], place: str) -> None:
    for column in columns:
        if not column.nullable and rows[column.name].null_count:
            raise ScriptFailedError(f"{place}: column {column.name} of type {column.type} cannot hold null.")


# ---- The files of an EXTRACT: parquet or CSV content, whatever their names ----


def _extract(account: Account, statement: Extract) -> _Rowset:
    schema, types = arrow_schema(statement.columns), types_of(statement)
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
    return _Rowset(pa.concat_tables(pieces), types)


def types_of(statement: Extract) -> dict[str, str]:
    """Return the columns of an EXTRACT -> SCOPE type, in order."""
    types = {column.name: column.type for column in statement.columns}
    return types | {column.name: VIRTUAL[column.function] for column in statement.virtual}


def _stream_files(account: Account, uri: str) -> tuple[Path, list[Path]]:
    """Return a file, and the units that hold its rows if it is a manifest.

    ``X.ss`` with a folder ``X`` beside it is a manifest; the rows are in the ``.du`` files of the folder.
    """
    path = account.local(uri)
    if not path.is_file():
        raise ScriptFailedError(f"Input stream {uri} does not exist.")
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
            rows = csv.read_csv(part, convert_options=options)
    except (pa.ArrowException, OSError) as err:
        raise ScriptFailedError(f"{uri} cannot be read: {err}.") from err
    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise ScriptFailedError(f"{uri} has no column {missing[0]}.")
    return rows.select(schema.names)


# ---- Columns of tables ----


def _add_column(table: DeltaTable, statement: AddColumn, commit: CommitProperties) -> None:
    name = statement.column.name
    if name.lower() not in (field.name.lower() for field in table.schema().fields):
        added = Schema.from_arrow(arrow_schema((statement.column,)))
        table.alter.add_columns(added.fields, commit_properties=commit)


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the columns as Arrow's, all nullable, as in Spark's tables."""
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def _property(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
