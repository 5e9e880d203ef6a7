"""An executor that reads files and runs SELECTs on Spark: one local session for all jobs.

Imported only when it is asked for, since it needs pyspark and Java.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from airflow_provider_scope.emulator.execution import Outcome
from airflow_provider_scope.emulator.reading import ScriptFailedError, StreamFile, is_parquet, open_stream
from airflow_provider_scope.emulator.script_run import ScriptRun, Tables, run_script
from airflow_provider_scope.engines.application import (
    EXCLUDED_PACKAGES,
    LOCAL_CONF,
    REQUIRED_CONF,
    delta_package,
)
from airflow_provider_scope.script.translate import translate
from airflow_provider_scope.script.types import spark_type
from airflow_provider_scope.spark.app import short_cause

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame

    from airflow_provider_scope.emulator.account import Account
    from airflow_provider_scope.emulator.execution import Task
    from airflow_provider_scope.script.statements import Assign, Extract, Insert
    from airflow_provider_scope.script.statements import Column as ScopeColumn

_FILE = "struct<part string, uri string, length bigint, modified bigint>"
_VIRTUAL = {
    "FILE.URI": ("string", "uri", "string"),
    "FILE.LENGTH": ("long?", "length", "bigint"),
    "FILE.CREATED": ("DateTime?", "created", "timestamp"),
    "FILE.MODIFIED": ("DateTime?", "modified", "timestamp"),
}
"""Function -> SCOPE type, name in the table of files, Spark type."""


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
            session.conf.set("spark.sql.ansi.enabled", "true")
            session.conf.set("spark.sql.session.timeZone", "UTC")
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
        streams = [open_stream(self.account, uri) for uri in statement.files]
        groups = _groups(streams, [column.name for column in statement.columns])
        pieces = [self._read(statement, streams, kind, parts) for kind, parts in groups]
        types = {column.name: column.type for column in statement.columns}
        types |= {one.name: _VIRTUAL[one.function][0] for one in statement.virtual}
        if pieces:
            rows = pieces[0]
            for piece in pieces[1:]:
                rows = rows.unionAll(piece)
        else:
            fields = ", ".join(f"{_quoted(name)} {spark_type(kind)}" for name, kind in types.items())
            rows = self._spark.createDataFrame([], fields)
        rows.createOrReplaceTempView(statement.rowset)
        self._types[statement.rowset] = types

    def assign(self, statement: Assign) -> None:
        rows, types = self._select(statement.select)
        rows.createOrReplaceTempView(statement.rowset)
        self._types[statement.rowset] = types

    def append(self, number: int, statement: Insert, path: Path, handle: DeltaTable) -> None:
        rows, _ = self._select(statement.select)
        names = pa.schema(handle.schema().to_arrow()).names
        if sorted(rows.columns) != sorted(names):
            raise ScriptFailedError(f"INSERT gives the columns {rows.columns}, the table has {names}.")
        declared = {column.name: column for column in self.columns.get(statement.table, ())}
        rows = rows.select([_checked(F.col(_quoted(name)), declared.get(name), name) for name in names])
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

    def _read(self, statement: Extract, streams: list[StreamFile], kind: str, parts: list[Path]) -> DataFrame:
        # Names are no patterns: `part[1].parquet` must not read `part1.parquet`.
        reader = self._spark.read.format(kind).option("__globPaths__", "false")
        if kind == "csv":
            reader = reader.option("header", "true")
        data = reader.load([part.as_posix() for part in parts])
        missing = [column.name for column in statement.columns if column.name not in data.columns]
        if missing:
            raise ScriptFailedError(f"{', '.join(statement.files)}: there is no column {missing[0]}.")
        picked = [
            _checked(F.col(_quoted(c.name)).cast(spark_type(c.type)), c, c.name) for c in statement.columns
        ]
        if not statement.virtual:
            return data.select(picked)
        key = F.regexp_replace(F.col("_metadata.file_path"), "^file:/+", "file:///")
        keyed = data.select(*picked, key.alias("scope part"))
        joined = keyed.join(F.broadcast(self._files(streams)), F.col("scope part") == F.col("part"), "left")
        named = [F.col(_quoted(column.name)) for column in statement.columns]
        for virtual in statement.virtual:
            _, source, spark = _VIRTUAL[virtual.function]
            value = {
                "created": F.lit(None),  # no disk tells it everywhere: unknown rather than guessed
                "modified": F.timestamp_millis("scope_file.modified"),
            }.get(source, F.col(f"scope_file.{source}"))
            named.append(value.cast(spark).alias(virtual.name))
        return joined.select(named)

    def _files(self, streams: list[StreamFile]) -> DataFrame:
        """Give the parts of all files as a table."""
        path = self._spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001 - as Spark encodes it
        rows = [
            {
                "part": re.sub("^file:/+", "file:///", path(f"file://{part}").toUri().toString()),
                "uri": stream.uri,
                "length": stream.size_bytes,
                "modified": stream.modified_ms,
            }
            for stream in streams
            for part in stream.parts
        ]
        # As a literal: a list of Python rows would start a Python worker.
        table = F.from_json(F.lit(json.dumps(rows)), f"array<{_FILE}>")
        exploded = self._spark.range(1).select(F.explode(table).alias("scope_file"))
        return exploded.select("scope_file", F.col("scope_file.part").alias("part"))


def _groups(streams: list[StreamFile], names: list[str]) -> list[tuple[str, list[Path]]]:
    """Put files of the same kind and types together; Spark reads each group with one schema."""
    groups: dict[tuple[str, str], list[Path]] = {}
    for stream in streams:
        for part in stream.parts:
            kind, types = "csv", ""
            if is_parquet(part):
                kind = "parquet"
                try:
                    schema = parquet.read_schema(part)
                except (pa.ArrowException, OSError) as err:
                    raise ScriptFailedError(f"{stream.uri} cannot be read: {err}.") from err
                types = repr([(f.name, str(f.type)) for f in schema if f.name in names])
            groups.setdefault((kind, types), []).append(part)
    return [(kind, parts) for (kind, _), parts in groups.items()]


def _checked(value: Column, column: ScopeColumn | None, name: str) -> Column:
    """Fail on a null where the type has none."""
    if column is None or column.nullable:
        return value.alias(name)
    failure = F.raise_error(F.lit(f"Column {name} of type {column.type} cannot hold null."))
    return F.when(value.isNull(), failure.cast(spark_type(column.type))).otherwise(value).alias(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
