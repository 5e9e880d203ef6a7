"""An executor without a JVM: real Delta tables through ``deltalake``, milliseconds a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake
from pyarrow import csv, parquet

from airflow_provider_scope.emulator.reading import ScriptFailedError, StreamFile, is_parquet, open_stream
from airflow_provider_scope.emulator.script_run import ScriptRun, Tables, delta_schema, run_script, sources_of
from airflow_provider_scope.emulator.selection import read_selection

if TYPE_CHECKING:
    from pathlib import Path

    from deltalake import DeltaTable

    from airflow_provider_scope.emulator.account import Account
    from airflow_provider_scope.emulator.execution import Outcome, Task
    from airflow_provider_scope.script.statements import Assign, Extract, Insert


class InstantExecutor:
    """Runs scripts whose SELECT only picks columns."""

    workers = 4

    def __init__(self, account: Account) -> None:
        self._account = account
        self._tables = Tables()

    def execute(self, task: Task) -> Outcome:
        """Run a script."""
        return run_script(_InstantRun(self._account, task, self._tables))

    def close(self) -> None:
        """Free what is held: nothing."""


class _InstantRun(ScriptRun):
    def __init__(self, account: Account, task: Task, tables: Tables) -> None:
        super().__init__(account, task, tables)
        self._rowsets: dict[str, pa.Table] = {}

    def assign(self, statement: Assign) -> None:
        self._rowsets[statement.rowset] = self._select(statement.select)

    def append(self, number: int, statement: Insert, path: Path, handle: DeltaTable) -> None:  # noqa: ARG002
        rows = self._select(statement.select)
        schema = pa.schema(handle.schema().to_arrow())
        rows = pa.table(
            {
                name: pa.nulls(rows.num_rows) if place is None else rows.column(place)
                for name, place in zip(
                    schema.names, sources_of(statement, rows.num_columns, schema.names), strict=True
                )
            }
        )
        for column in self.columns.get(statement.table, ()):
            if not column.nullable and rows[column.name].null_count:
                raise ScriptFailedError(f"Column {column.name} of type {column.type} cannot hold null.")
        converted = _converted(rows, schema)
        self.check_cancelled()
        write_deltalake(handle, converted, mode="append", commit_properties=self.commit(number))

    def extract(self, statement: Extract) -> None:
        self._rowsets[statement.rowset] = self._read(statement)

    def _read(self, statement: Extract) -> pa.Table:

        fields = list(pa.schema(delta_schema(statement.columns).to_arrow()))
        pieces = []
        for uri in statement.files:
            stream = open_stream(self.account, uri)
            for part in stream.parts:
                rows = _rows(part, stream, fields)
                for column in statement.columns:
                    if not column.nullable and rows[column.name].null_count:
                        raise ScriptFailedError(
                            f"{uri}: column {column.name} of type {column.type} holds null."
                        )
                for virtual in statement.virtual:
                    values = pa.repeat(_virtual(virtual.function, stream), rows.num_rows)
                    rows = rows.append_column(virtual.name, values)
                pieces.append(rows)
        if pieces:
            return pa.concat_tables(pieces)
        empty = StreamFile("", (), 0, 0)
        fields += [pa.field(v.name, _virtual(v.function, empty).type) for v in statement.virtual]
        return pa.schema(fields).empty_table()

    def _select(self, text: str) -> pa.Table:
        selection = read_selection(text)
        rows = self._rowsets.get(selection.rowset)
        if rows is None:
            raise ScriptFailedError(f"There is no rowset @{selection.rowset}.")
        if selection.columns is None:
            return rows
        missing = [name for name, _ in selection.columns if name not in rows.column_names]
        if missing:
            raise ScriptFailedError(f"There is no column {missing[0]} in @{selection.rowset}.")
        picked = rows.select([name for name, _ in selection.columns])
        return picked.rename_columns([alias for _, alias in selection.columns])


def _rows(part: Path, stream: StreamFile, fields: list[Any]) -> pa.Table:

    try:
        rows = parquet.read_table(part, partitioning=None) if is_parquet(part) else csv.read_csv(part)
    except (pa.ArrowException, OSError) as err:
        raise ScriptFailedError(f"{stream.uri} cannot be read: {err}.") from err
    missing = [field.name for field in fields if field.name not in rows.column_names]
    if missing:
        raise ScriptFailedError(f"{stream.uri} has no column {missing[0]}.")
    return _converted(rows.select([field.name for field in fields]), pa.schema(fields), stream.uri)


def _converted(rows: pa.Table, schema: Any, where: str = "INSERT") -> pa.Table:

    try:
        return rows.cast(schema)
    except (pa.ArrowException, ValueError) as err:
        raise ScriptFailedError(f"{where}: {err}") from err


def _virtual(function: str, stream: StreamFile) -> Any:

    moment = pa.timestamp("us", "UTC")
    values: dict[str, tuple[Any, Any]] = {
        "FILE.URI": (stream.uri, pa.string()),
        "FILE.LENGTH": (stream.size_bytes, pa.int64()),
        # No disk tells it everywhere: unknown rather than guessed.
        "FILE.CREATED": (None, moment),
        "FILE.MODIFIED": (stream.modified_ms * 1000, moment),
    }
    value, kind = values[function]
    return pa.scalar(value, kind)
