"""An executor that reads files and runs SELECTs on Spark: one local session for all jobs.

Imported only when it is asked for, since it needs pyspark and Java.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from airflow_provider_scope.core.sql import quoted
from airflow_provider_scope.core.streams import Stream
from airflow_provider_scope.emulator.execution import Outcome
from airflow_provider_scope.emulator.reading import ScriptFailedError, open_stream
from airflow_provider_scope.emulator.script_run import ScriptRun, Tables, run_script, sources_of
from airflow_provider_scope.engines import streams
from airflow_provider_scope.engines.application import (
    EXCLUDED_PACKAGES,
    LOCAL_CONF,
    REQUIRED_CONF,
    delta_package,
)
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.script.translate import translate
from airflow_provider_scope.spark.app import make_exact
from airflow_provider_scope.spark.causes import short_cause
from airflow_provider_scope.spark.streams import checked, read_streams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame

    from airflow_provider_scope.core.streams import StreamColumn
    from airflow_provider_scope.emulator.account import Account
    from airflow_provider_scope.emulator.execution import Task
    from airflow_provider_scope.emulator.reading import StreamFile
    from airflow_provider_scope.script.statements import Assign, Extract, Insert


class SparkExecutor:
    """Runs the scripts that ``script.translate`` knows.

    :param session: A session with Delta that the caller stops; without one, it starts its own.
    :param conf: Settings for its own session.
    """

    workers = 2

    def __init__(
        self,
        account: Account,
        *,
        session: SparkSession | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self._account = account
        self._conf = dict(conf or {})
        self._tables = Tables()
        self._starting = threading.Lock()
        self._session = session
        self._is_ours = session is None

    def start(self) -> None:
        """Start Spark now, so that the first script does not wait for it."""
        self._started()

    def execute(self, task: Task) -> Outcome:
        """Run a script; the first one waits for Spark to start, unless it was started."""
        try:
            session = self._started().newSession()
            make_exact(session)
            return run_script(_SparkRun(self._account, task, self._tables, session))
        except (PySparkException, Py4JJavaError) as err:
            return Outcome(short_cause(err))

    def close(self) -> None:
        """Stop Spark, if this executor started it."""
        if self._session is not None and self._is_ours:
            self._session.stop()
        self._session = None

    def _started(self) -> SparkSession:
        with self._starting:
            if self._session is None:
                builder = SparkSession.builder.master("local[*]").appName("scope-emulator")
                settings = {
                    "spark.jars.packages": delta_package(),
                    "spark.jars.excludes": ",".join(EXCLUDED_PACKAGES),
                    **REQUIRED_CONF,
                    **LOCAL_CONF,
                    **self._conf,
                }
                for key, value in settings.items():
                    builder = builder.config(key, value)
                self._session = builder.getOrCreate()
            return self._session


class _SparkRun(ScriptRun):
    def __init__(self, account: Account, task: Task, tables: Tables, session: SparkSession) -> None:
        super().__init__(account, task, tables)
        self._spark = session
        self._types: dict[str, dict[str, str]] = {}

    def extract(self, statement: Extract) -> None:
        try:
            files = [_as_stream(open_stream(self.account, uri)) for uri in statement.files]
            what = streams.extraction(statement, files)
            rows = read_streams(self._spark, what)
        except InputError as err:
            raise ScriptFailedError(err.what) from err
        rows.createOrReplaceTempView(statement.rowset)
        self._types[statement.rowset] = what.types

    def assign(self, statement: Assign) -> None:
        rows, types = self._select(statement.select)
        rows.createOrReplaceTempView(statement.rowset)
        self._types[statement.rowset] = types

    def append(self, number: int, statement: Insert, path: Path, handle: DeltaTable) -> None:
        rows, _ = self._select(statement.select)
        names = pa.schema(handle.schema().to_arrow()).names
        places = sources_of(statement, len(rows.columns), names)
        declared = {c.name: streams.column_of(c) for c in self.columns.get(statement.table, ())}
        rows = rows.select(
            [
                checked(_value(rows, place, declared.get(name)), declared.get(name), name)
                for name, place in zip(names, places, strict=True)
                # Delta gives NULL where a column is not there, with the type that the table has.
                if place is not None or name in declared
            ]
        )
        self.check_cancelled()
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", self.app).option("txnVersion", str(number))
        metadata = self.metadata()
        if metadata:
            writer = writer.option("userMetadata", metadata)
        writer.save(str(path))

    def _select(self, text: str) -> tuple[DataFrame, dict[str, str]]:
        translation = translate(text, self._types)
        return self._spark.sql(translation.sql), translation.columns


def _value(rows: DataFrame, place: int | None, column: StreamColumn | None) -> Column:
    if place is not None:
        return F.col(quoted(rows.columns[place]))
    return F.lit(None).cast(column.spark) if column else F.lit(None)


def _as_stream(file: StreamFile) -> Stream:
    parts = tuple(part.as_posix() for part in file.parts)
    return Stream(file.uri, parts, file.size_bytes, file.modified_ms)
