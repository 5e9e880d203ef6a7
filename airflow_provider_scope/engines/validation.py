"""Run the model of a task with local Spark on some of its files, before a job is paid for."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.core import discovery, model_check, recovery
from airflow_provider_scope.core.files import printable
from airflow_provider_scope.core.jobs import outcome
from airflow_provider_scope.core.model_check import ModelPlan, model_differences, table_differences
from airflow_provider_scope.core.streams import Stream
from airflow_provider_scope.engines import application, streams
from airflow_provider_scope.engines.java import check_java
from airflow_provider_scope.engines.scope import ScopeRunner, job_id
from airflow_provider_scope.engines.scope_script import script_batch
from airflow_provider_scope.engines.submit import SubmitHook
from airflow_provider_scope.exceptions import (
    EngineError,
    InputError,
    ModelValidationError,
    SourceUnreadableError,
    SparkJobFailedError,
)
from airflow_provider_scope.execution.files import Files
from airflow_provider_scope.hooks.adls_gen1 import AdlsGen1Hook
from airflow_provider_scope.script.batch import BatchIdentity
from airflow_provider_scope.script.errors import ScriptError
from airflow_provider_scope.script.generate import generate
from airflow_provider_scope.script.parse import parse
from airflow_provider_scope.script.statements import Assign, CreateTable, Extract, Insert
from airflow_provider_scope.script.translate import translate
from airflow_provider_scope.script.types import spark_type
from airflow_provider_scope.specs import ScopeEngine
from airflow_provider_scope.table.columns import table_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_scope.core.files import FileEntry
    from airflow_provider_scope.core.model_check import TableColumns
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.engines.spark import SparkRunner
    from airflow_provider_scope.execution.files import Listing
    from airflow_provider_scope.execution.micro_batch import MicroBatchExecution
    from airflow_provider_scope.execution.request import Request
    from airflow_provider_scope.specs.ingest import Ingest

LIMIT_BYTES = 268_435_456
"""Bytes of all files of a validation; larger files are passed over."""
_CHUNK_BYTES = 16_777_216
_NO_BATCH = BatchIdentity("00000000-0000-0000-0000-000000000000", 0, 0)
_SCRIPT = str(Path(application.SCRIPT).with_name("model_main.py"))
_UNTOUCHED = "everything; no job was submitted and nothing was written"


class Remembered:
    """A source that is listed once, though two look at it."""

    def __init__(self, source: Listing) -> None:
        self.source = source
        self._found: dict[str, list[FileEntry]] = {}

    def walk(self, root: str) -> Iterator[FileEntry]:
        """List every file below a folder, or tell again what was there."""
        if root not in self._found:
            self._found[root] = list(self.source.walk(root))
        return iter(self._found[root])


@dataclass(frozen=True, slots=True)
class _Model:
    """The parts of a batch's script that a validation runs."""

    extract: Extract
    assign: Assign
    insert: Insert
    create: CreateTable


@dataclass
class Validator:
    """Tries a model on files of its source.

    What is tried is the script of a batch itself, so nothing is validated that a job would not do. The
    order is that of the costs: text, the table's log, the files' first bytes, Spark.

    :param report: Takes each line of progress.
    """

    ingest: Ingest
    execution: MicroBatchExecution
    request: Request
    runner: ScopeRunner | SparkRunner
    log_file: Path
    report: Callable[[str], None]
    _engine: ScopeEngine = field(init=False, repr=False)
    _hook: SubmitHook | None = field(default=None, repr=False)
    _cancelled: bool = field(default=False, repr=False)
    _event: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Let the run that follows use the same listing.

        :raises InputError: The task's batches run on Spark.
        """
        files = self.execution.source
        if not isinstance(self.ingest.engine, ScopeEngine) or not isinstance(files, Files):
            raise InputError(
                "The batches of this task run on Spark, which needs no validation.",
                kept=_UNTOUCHED,
                do="validate tasks with engine=ScopeEngine(…)",
            )
        self._engine = self.ingest.engine
        self.files = files
        self.listing = files.listing = Remembered(files.listing)

    def before_run(self, count: int) -> None:
        """Try the model on the first files that the run would load, unless it would submit no job.

        A batch whose job is at work, or done, was tried when that was submitted.

        :raises ModelValidationError: The model does not fit its table, or does not run on the files.
        :raises ScopeProviderError: What the run itself would raise before it writes anything.
        """
        still_open, planned = self._next()
        if not still_open and not planned:
            self.report("nothing to load, so nothing is validated")
        elif self._has_job(still_open):
            self.report("a job of an open batch has been submitted, so nothing is validated")
        else:
            self._try(_files(still_open, planned), count)

    def now(self, count: int) -> None:
        """Try the model on the first files that a run would load, else on the newest of the source.

        :raises ModelValidationError: As above; or there is no file.
        """
        still_open, planned = self._next()
        files: Iterable[FileEntry] = _files(still_open, planned)
        if not still_open and not planned:
            listed = (file for root in self.files.roots for file in self.listing.walk(root))
            found = discovery.candidates(listed, self.files.rules, self.files.roots).files
            self.report("a run would load nothing; the newest files of the source are taken")
            if not found:
                raise ModelValidationError(
                    f"There is no file in {', '.join(self.files.roots)} to try the SELECT on.",
                    kept=_UNTOUCHED,
                    do="see `airflow scope plan` for the files that are left out, and why",
                )
            files = reversed(found)
        self._try(files, count)

    def cancel(self) -> None:
        """End Spark, if it runs; called from a signal handler."""
        self._cancelled = True
        if self._hook:
            self._hook.end()

    # ---- what to try ---------------------------------------------------------------------------

    def _next(self) -> tuple[Sequence[OffsetEntry], Sequence[OffsetEntry]]:
        _, was_open, planned = self.execution.plan(self.request)
        return recovery.open_entries(was_open, planned[-1] if planned else None), planned

    def _has_job(self, entries: Sequence[OffsetEntry]) -> bool:
        pipeline = self.execution.log.pipeline()
        if pipeline is None or not isinstance(self.runner, ScopeRunner):
            return False
        for entry in entries:
            made = [one for one in self.execution.log.attempts(entry.seq) if not one.void]
            job = (
                self.runner.jobs.get_job(job_id(pipeline.pipeline, entry.seq, made[-1].number))
                if made
                else None
            )
            if job and outcome(job) in ("waiting", "succeeded"):
                return True
        return False

    def _try(self, files: Iterable[FileEntry], count: int) -> None:
        chosen = model_check.choose(files, count, LIMIT_BYTES)
        if not chosen:
            raise ModelValidationError(
                f"No file is small enough to try the SELECT on: all are larger than {LIMIT_BYTES:,} bytes.",
                kept=_UNTOUCHED,
                do="leave validate_on_spark out",
            )
        model = self._model(chosen)
        table = table_columns(self.request.table, self.runner.table_storage)
        extraction = streams.extraction(model.extract, ())
        try:
            translation = translate(model.assign.select, {model.extract.rowset: extraction.types})
        except ScriptError as err:
            raise ModelValidationError(
                f"The SELECT cannot be translated to Spark SQL: {err.what}.",
                kept=_UNTOUCHED,
                do=f"{err.do}; or leave validate_on_spark out, if SCOPE accepts the SELECT",
            ) from err
        columns = [streams.column_of(column) for column in model.create.columns]
        declared = [(column.name, column.spark) for column in columns]
        made = [(name, spark_type(kind)) for name, kind in translation.columns.items()]
        found = model_differences(made, declared)
        if table:
            adds = self.ingest.table.schema_evolution != "fail"
            found += table_differences(declared, model.create.partition_by, table, adds_columns=adds)
            columns = [replace(c, nullable=c.nullable and c.name not in table.not_null) for c in columns]
        self._refuse(found, table)
        inserted = translate(model.insert.select, {model.assign.rowset: translation.columns})
        with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-") as name:
            folder = Path(name)
            copies = [self._copy(file, folder / "files" / str(n)) for n, file in enumerate(chosen)]
            plan = ModelPlan(
                extraction=streams.extraction(model.extract, copies),
                rowset=model.extract.rowset,
                queries=((model.assign.rowset, translation.sql), (model.insert.table, inserted.sql)),
                columns=tuple(columns),
                partition_by=model.create.partition_by,
                table=str(folder / "table"),
            )
            event = self._run(folder, plan, chosen)
        self._refuse(model_differences([(name, kind) for name, kind in event["columns"]], declared), table)
        fits = f"the table at version {table.version}" if table else "what is declared; there is no table yet"
        self.report(f"the SELECT gives {event['rows']:,} rows, which fit {fits}")

    def _model(self, chosen: tuple[FileEntry, ...]) -> _Model:
        located = replace(self.ingest, delta_location=self.request.table)
        previews = self._engine.feature_previews or ()
        batch = script_batch(located, self._engine, previews, _NO_BATCH, (self.request.refresh, chosen))
        parts = {type(one): one for one in parse(generate(batch))}
        return _Model(*(parts[kind] for kind in (Extract, Assign, Insert, CreateTable)))  # type: ignore[arg-type]

    def _refuse(self, found: Sequence[str], table: TableColumns | None) -> None:
        if not found:
            return
        version = f" at version {table.version}" if table else ""
        raise ModelValidationError(
            f"The SELECT and the table {self.request.table}{version} do not fit: {'; '.join(found)}.",
            kept=_UNTOUCHED,
            do="change the SELECT or table.columns, with a cast where a conversion is meant; or the table",
        )

    # ---- files ---------------------------------------------------------------------------------

    def _copy(self, file: FileEntry, folder: Path) -> Stream:
        """Copy a file. ``X.ss`` with a folder ``X`` is a manifest; the rows are in its ``.du`` files."""
        folder.mkdir(parents=True)
        units: list[str] = []
        if file.path.endswith(".ss"):
            inside = file.path.removesuffix(".ss") + "/"
            listed = (one for root in self.files.roots for one in self.listing.walk(root))
            units = [one.path for one in listed if one.path.startswith(inside) and one.path.endswith(".du")]
        parts = []
        left = file.size_bytes
        for number, path in enumerate(sorted(set(units)) or [file.path]):
            target = folder / str(number)
            with target.open("wb") as copy:
                for chunk in self._chunks(path, left):
                    copy.write(chunk)
                left -= copy.tell()
            if target.stat().st_size:
                parts.append(str(target))
        return Stream(file.path, tuple(parts), file.size_bytes, file.modified_ms)

    def _chunks(self, path: str, limit: int) -> Iterator[bytes]:
        """Read a file; one that has grown beyond a limit since it was listed is refused."""
        offset = 0
        while chunk := self._read(path, offset, min(_CHUNK_BYTES, limit + 1 - offset)):
            if offset + len(chunk) > limit:
                raise _unreadable(path, "it has grown since it was listed")
            if not offset and not streams.is_readable(chunk[:4096]):
                raise ModelValidationError(
                    f"{printable(path)} is neither parquet nor text: structured streams in SCOPE's own "
                    "binary format cannot be read by Spark.",
                    kept=_UNTOUCHED,
                    do="leave validate_on_spark out for such files: SCOPE reads them; or validate a task of "
                    "the same SELECT over parquet or csv files with the same columns",
                )
            offset += len(chunk)
            yield chunk

    def _read(self, path: str, offset: int, length: int) -> bytes:
        source = self.listing.source
        try:
            if isinstance(source, AdlsGen1Hook):
                data = source.read(path, offset=offset, length=length)
            else:
                with Path(path.removeprefix("file://")).open("rb") as file:
                    file.seek(offset)
                    data = file.read(length)
        except FileNotFoundError:
            data = None
        except OSError as err:
            raise _unreadable(path, str(err)) from err
        if data is None:
            raise _unreadable(path, "it vanished after it was listed")
        return data

    # ---- Spark ---------------------------------------------------------------------------------

    def _run(self, folder: Path, plan: ModelPlan, chosen: Sequence[FileEntry]) -> dict[str, Any]:
        size = sum(file.size_bytes for file in chosen)
        names = ", ".join(printable(file.path) for file in chosen[:3]) + (", …" if chosen[3:] else "")
        self.report(
            f"trying the SELECT with local Spark on {len(chosen):,} file{'' if len(chosen) == 1 else 's'} "
            f"({size:,} bytes): {names}. Spark's log: {self.log_file}"
        )
        path = folder / "plan.json"
        path.write_bytes(model_check.encode(plan))
        archive = folder / "application.zip"
        application.write_zip(archive)
        self._event = {}
        try:
            self._submit(folder, archive, path, check_java())
        except EngineError as err:
            if not self._event or self._cancelled:
                raise type(err)(
                    err.what,
                    kept=_UNTOUCHED,
                    do=f"correct it, or leave validate_on_spark out. Full log: {self.log_file}",
                ) from err
        finally:
            self._hook = None
        if self._event.get("event") == "failed":
            raise ModelValidationError(
                f"The SELECT does not run on the files: {self._event['cause']}",
                kept=_UNTOUCHED,
                do=f"correct `sql`, source.columns or table.columns. Full log: {self.log_file}",
            )
        if self._event.get("event") != "ran":
            raise SparkJobFailedError(
                "Spark ended without a result.", kept=_UNTOUCHED, do=f"see its log: {self.log_file}"
            )
        return self._event

    def _submit(self, folder: Path, archive: Path, plan: Path, java_version: str) -> None:
        java = application.LOCAL_CONF["spark.driver.extraJavaOptions"]
        scratch = folder / "scratch"
        scratch.mkdir()
        conf = {
            **application.REQUIRED_CONF,
            **application.LOCAL_CONF,
            # So that nothing is left behind when Spark is killed.
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.extraJavaOptions": f"{java} -Djava.io.tmpdir={scratch}",
        }
        self._hook = SubmitHook(
            conn_id=None,
            log_file=self.log_file,
            on_event=self._on_event,
            conf=conf,
            packages=application.delta_package(),
            exclude_packages=",".join(application.EXCLUDED_PACKAGES),
            py_files=str(archive),
            name="airflow-provider-scope-validation",
            java_version=java_version,
            report=self.report,
        )
        if self._cancelled:
            self._hook.end()
        self._hook.run(_SCRIPT, [str(plan)])

    def _on_event(self, event: dict[str, Any]) -> None:
        self._event = event


def _files(*entries: Sequence[OffsetEntry]) -> Iterator[FileEntry]:
    return (file for entry in chain(*entries) for file in entry.files)


def _unreadable(path: str, why: str) -> SourceUnreadableError:
    return SourceUnreadableError(
        f"The file {printable(path)} could not be read: {why}.",
        kept=_UNTOUCHED,
        do="give the worker read access to it; the next try reads it again",
    )
