"""Running the statements of a script on real Delta tables; how rows are read is left to others."""

from __future__ import annotations

import json
import re
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError

from airflow_provider_scope.emulator.account import Account, PathError
from airflow_provider_scope.emulator.execution import Outcome, Task
from airflow_provider_scope.emulator.predicates import delete_predicate
from airflow_provider_scope.emulator.reading import ScriptFailedError
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.script.errors import ScriptError
from airflow_provider_scope.script.parse import parse
from airflow_provider_scope.script.statements import (
    AddColumn,
    AlterTable,
    Assign,
    CreateTable,
    DeclareTable,
    Delete,
    Extract,
    Insert,
)
from airflow_provider_scope.script.types import scope_type, spark_type

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_scope.script.statements import Column, Statement

_DELTA_NAMES = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte"}


class Tables:
    """The tables that scripts use: one script at a time, and opened once for all of them.

    Opening reads the whole log, which takes longer the more jobs there were; going on from an open one
    reads what is new.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[Path, tuple[tuple[int, int], DeltaTable]] = {}

    def lock(self, path: Path) -> threading.Lock:
        """Give the lock of a table."""
        with self._guard:
            return self._locks[path]

    def open(self, path: Path) -> DeltaTable:
        """Open a table, its lock held.

        :raises ScriptFailedError: There is none.
        """
        try:
            first = (path / "_delta_log" / f"{0:020}.json").stat()
            # A table that was deleted and made again has another first commit.
            stamp = (first.st_ino, first.st_mtime_ns)
            known = self._open.get(path)
            if known is not None and known[0] == stamp:
                known[1].update_incremental()
                return known[1]
            handle = DeltaTable(str(path))
        except (FileNotFoundError, TableNotFoundError) as err:
            raise ScriptFailedError(f"There is no table at {path.name}.") from err
        self._open[path] = (stamp, handle)
        return handle


class ScriptRun(ABC):
    """One script on its way.

    Every commit of a job carries the transaction ``scope-job-<id>`` with the number of its statement as
    version. A script that is run again after a kill skips the statements that are in the table, so a job
    commits once.
    """

    def __init__(self, account: Account, task: Task, tables: Tables) -> None:
        self.account = account
        self.task = task
        self.app = f"scope-job-{task.job_id}"
        self.columns: dict[str, tuple[Column, ...]] = {}
        """Table -> its columns as the script declares them."""
        self.tables = tables
        self._paths: dict[str, Path] = {}

    @abstractmethod
    def extract(self, statement: Extract) -> None:
        """Read files into a rowset."""

    @abstractmethod
    def assign(self, statement: Assign) -> None:
        """Make a rowset of another one."""

    @abstractmethod
    def append(self, number: int, statement: Insert, path: Path, handle: DeltaTable) -> None:
        """Append the rows of a SELECT to a table."""

    def step(self, number: int, statement: Statement) -> None:
        """Run a statement.

        :raises ScriptFailedError: The script is to blame.
        """
        self.check_cancelled()
        match statement:
            case CreateTable():
                self._paths[statement.name] = self.account.local(statement.location)
                self.columns[statement.name] = statement.columns
                self._create(statement)
            case DeclareTable():
                self._paths[statement.name] = self.account.local(statement.location)
                self._handle(statement.name)
            case AlterTable():
                self._alter(number, statement)
            case AddColumn():
                self._add_column(number, statement)
            case Delete():
                self._delete(number, statement)
            case Extract():
                self.extract(statement)
            case Assign():
                self.assign(statement)
            case Insert():
                handle = self._handle(statement.table)
                if not self._is_done(handle, number):
                    self.append(number, statement, self._paths[statement.table], handle)

    def check_cancelled(self) -> None:
        """Stop when the job was cancelled.

        :raises ScriptFailedError: It was.
        """
        if self.task.is_cancelled():
            raise ScriptFailedError("The job was cancelled.")

    def metadata(self) -> str | None:
        """Give the ``userMetadata`` of a commit."""
        return json.dumps({"scopeJobId": self.task.job_id}) if self.task.names_job else None

    def commit(self, number: int | None) -> CommitProperties:
        """Give the properties of a commit; a statement without a number may be repeated."""
        metadata = self.metadata()
        return CommitProperties(
            custom_metadata={"userMetadata": metadata} if metadata else None,
            app_transactions=[] if number is None else [Transaction(self.app, number)],
        )

    def _create(self, statement: CreateTable) -> None:
        path = self._paths[statement.name]
        if DeltaTable.is_deltatable(str(path)):
            if not statement.if_not_exists:
                raise ScriptFailedError(f"Table {statement.location} exists already.")
            return
        DeltaTable.create(
            str(path),
            # Nullable as in Spark's tables; nulls are checked before they are written.
            delta_schema(statement.columns),
            mode="ignore",
            partition_by=list(statement.partition_by) or None,
            commit_properties=self.commit(None),
        )

    def _alter(self, number: int, statement: AlterTable) -> None:
        handle = self._handle(statement.table)
        if not self._is_done(handle, number):
            properties = {key: _text(value) for key, value in statement.properties}
            handle.alter.set_table_properties(
                properties, raise_if_not_exists=False, commit_properties=self.commit(number)
            )

    def _add_column(self, number: int, statement: AddColumn) -> None:
        handle = self._handle(statement.table)
        if self._is_done(handle, number):
            return
        name = statement.column.name
        if name.lower() in (field.name.lower() for field in handle.schema().fields):
            if not statement.if_not_exists:
                raise ScriptFailedError(f"The table has a column {name} already.")
            return
        fields = delta_schema((statement.column,)).fields
        handle.alter.add_columns(fields, commit_properties=self.commit(number))

    def _delete(self, number: int, statement: Delete) -> None:
        handle = self._handle(statement.table)
        if not self._is_done(handle, number):
            predicate = delete_predicate(statement.where, _comparable(handle.schema()))
            handle.delete(None if predicate == "true" else predicate, commit_properties=self.commit(number))

    def _handle(self, name: str) -> DeltaTable:
        path = self._paths.get(name)
        if path is None:
            raise ScriptFailedError(f"Table {name} is not declared.")
        return self.tables.open(path)

    def _is_done(self, handle: DeltaTable, number: int) -> bool:
        """Tell whether an earlier run of this job committed a statement."""
        done = handle.transaction_version(self.app)
        return done is not None and done >= number


def sources_of(statement: Insert, given: int, columns: list[str]) -> list[int | None]:
    """Give for each column of a table which column of the SELECT goes into it, if any.

    :param given: How many columns the SELECT gives.
    :param columns: Those of the table, in order.
    :raises ScriptFailedError: They do not match.
    """
    if not statement.columns:
        if given != len(columns):
            raise ScriptFailedError(
                f"INSERT gives {given} columns, and the table has {len(columns)}: {', '.join(columns)}."
            )
        return list(range(given))
    if given != len(statement.columns):
        raise ScriptFailedError(
            f"INSERT names {len(statement.columns)} columns, and its SELECT gives {given}."
        )
    for name in statement.columns:
        if name not in columns:
            raise ScriptFailedError(f"The table has no column {name}.")
    return [statement.columns.index(name) if name in statement.columns else None for name in columns]


def run_script(run: ScriptRun) -> Outcome:
    """Run a script to its end."""
    try:
        statements = parse(run.task.script)
        paths = {
            run.account.local(one.location)
            for one in statements
            if isinstance(one, CreateTable | DeclareTable)
        }
        with ExitStack() as held:
            # In one order, so that two scripts on the same two tables do not wait for each other.
            for path in sorted(paths):
                held.enter_context(run.tables.lock(path))
            for number, statement in enumerate(statements, start=1):
                run.step(number, statement)
    except ScriptError as err:
        return Outcome(f"E_CSC_USER_SYNTAXERROR: {err.what}")
    except (ScriptFailedError, PathError) as err:
        return Outcome(str(err))
    return Outcome()


def delta_schema(columns: tuple[Column, ...]) -> Schema:
    """Give columns as Delta writes them."""
    fields = [
        {
            "name": column.name,
            "type": _delta_type(spark_type(column.type)),
            "nullable": True,
            "metadata": {},
        }
        for column in columns
    ]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _delta_type(spark: str) -> str | dict[str, Any]:
    kind, _, inner = spark.removesuffix(">").partition("<")
    if kind == "array":
        return {"type": "array", "elementType": _delta_type(inner), "containsNull": True}
    if kind == "map":
        # A key has no comma, unless it is a decimal.
        key, value = re.split(r",(?![^(]*\))", inner, maxsplit=1)
        return {
            "type": "map",
            "keyType": _delta_type(key),
            "valueType": _delta_type(value),
            "valueContainsNull": True,
        }
    return _DELTA_NAMES.get(spark, spark)


def _comparable(schema: Schema) -> dict[str, str]:
    """Give the columns of a table that a predicate can name -> SCOPE type."""
    spark = {delta: name for name, delta in _DELTA_NAMES.items()}
    found = {}
    for field in json.loads(schema.to_json())["fields"]:
        # Arrays, maps and types that SCOPE has not cannot be compared.
        with suppress(InputError):
            found[field["name"]] = scope_type(spark.get(str(field["type"]), str(field["type"])))
    return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
