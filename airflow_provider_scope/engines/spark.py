"""The Spark engine: one application for all open batches of a run."""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_scope.columns import declared
from airflow_provider_scope.delta.probe import probe
from airflow_provider_scope.engines import application
from airflow_provider_scope.engines.sources import plan_of
from airflow_provider_scope.engines.submit import SubmitHook, check_java
from airflow_provider_scope.exceptions import ScopeProviderError, SparkJobFailedError, StorageError
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.settings import EXACT_AT_START
from airflow_provider_scope.specs.ingest import puts_bad_records_aside
from airflow_provider_scope.specs.write import for_plan, with_own_columns
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_scope.hooks.databases import Database
    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import OffsetEntry, TableIdentity
    from airflow_provider_scope.protocol.recovery import TableState
    from airflow_provider_scope.specs import SparkEngine, TableSpec
    from airflow_provider_scope.specs.ingest import AnySource
    from airflow_provider_scope.specs.write import Write
    from airflow_provider_scope.stores.protocol import Storage, Store

logger = logging.getLogger(__name__)


@dataclass
class SparkRunner:
    """Runs batches with ``spark-submit``.

    :param log_file: Where the application's whole output goes.
    :param new_id: Names the plan file.
    :param report: Takes each line of progress.
    :param quarantine: URI of the table for what is put aside.
    :param table_storage: Where the table is; None is a disk of this machine.
    :param stores: What Spark needs to reach: those of the files, the table and the checkpoint.
    :param database: The database that is read, if one is.
    """

    engine: SparkEngine
    source: AnySource
    table: TableSpec
    sql: str
    sql_params: dict[str, Any]
    storage: Storage
    log_file: Path
    new_id: Callable[[], str]
    report: Callable[[str], None] = logger.info
    quarantine: str = ""
    write: Write = "append"
    table_storage: Storage | None = None
    stores: Sequence[Store] = ()
    database: Database | None = field(default=None, repr=False)
    fences_without_table: ClassVar[bool] = False
    """An empty transaction needs a table."""
    outlives_task: ClassVar[bool] = False
    newest_job: ClassVar[str | None] = None
    """There is none to look at."""
    _hook: SubmitHook | None = field(default=None, repr=False)
    _failure: dict[str, str] | None = field(default=None, repr=False)
    _done: int = field(default=0, repr=False)
    _batch_count: int = field(default=0, repr=False)
    """Batches that the application was given."""
    _error_while_waiting: ScopeProviderError | None = field(default=None, repr=False)
    """What went wrong here while the application waited."""
    _give_more: Callable[[], None] | None = field(default=None, repr=False)
    """Answers an application that waits for more batches."""
    _warned: set[str] = field(default_factory=set, repr=False)
    _cancelled: bool = field(default=False, repr=False)

    def probe(
        self, location: str, pipeline: str | None, baseline: tuple[TableIdentity | None, int]
    ) -> TableState:
        """Look at the table, without a JVM."""
        return probe(location, pipeline, baseline, self.table_storage)

    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:
        """Run the batches in one application, and those that follow from them."""
        self._submit(work, entries, fence=False, more=more)

    def fence(self, work: Work, entry: OffsetEntry) -> None:
        """Commit an empty transaction in place of a batch."""
        self._submit(work, [entry], fence=True)

    def check(self, work: Work, entry: OffsetEntry) -> None:
        """Refuse nothing: what a SELECT gives, only Spark tells."""

    def cancel(self) -> None:
        """End the application; one that has not started yet never does."""
        self._cancelled = True
        if self._hook:
            self._hook.end()

    def plan(self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool) -> plans.Plan:
        """Give what the application is asked to do."""
        log = CheckpointLog(self.storage, work.checkpoint)
        puts_aside = puts_bad_records_aside(self.source) and not fence
        return plans.Plan(
            pipeline=work.pipeline,
            table=work.table,
            checkpoint=work.checkpoint,
            batches=tuple(entry.seq for entry in entries),
            source=plan_of(
                self.source,
                self.write,
                work.columns,
                fence=fence,
                database=self.database.kind if self.database else "",
            ),
            sql=self.sql,
            sql_params=self.sql_params,
            table_columns=with_own_columns(declared(self.table.columns), self.write),
            write=for_plan(self.write),
            partition_by=tuple(self.table.partition_by),
            properties=dict(self.table.properties or {}),
            schema_evolution=self.table.schema_evolution,
            expect=dict(self.table.expect or {}),
            quarantines=tuple(log.use_quarantine(self.quarantine) if puts_aside else log.quarantines()),
            first=work.first,
            fence=fence,
            empties=fence and any(entry.mode == "overwrite" for entry in entries),
        )

    def _submit(
        self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, more: More | None = None
    ) -> None:
        check_java()
        first = f"{work.checkpoint}/plans/{self.new_id()}"
        paths: list[str] = []

        def give(entries: Sequence[OffsetEntry]) -> None:
            self._batch_count += len(entries)
            paths.append(plans.path(first, len(paths)))
            self.storage.replace(paths[-1], plans.encode(self.plan(work, entries, fence=fence)))

        self._done, self._batch_count, self._error_while_waiting = 0, 0, None
        self._give_more = partial(self._answer, more, give) if more else None
        folder = Path(tempfile.mkdtemp(prefix="airflow-provider-scope-"))
        try:
            give(entries)
            archive = folder / "application.zip"
            application.write_zip(archive)
            self._run(archive, [first, *([application.MORE] if more else [])])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            for path in paths:
                self._delete(path)

    def _answer(self, more: More, give: Callable[[Sequence[OffsetEntry]], None]) -> None:
        """Give an application that waits what follows; nothing ends it."""
        following: Sequence[OffsetEntry] = ()
        try:
            following = more()
        except ScopeProviderError as err:
            self._error_while_waiting = err  # for when it has ended
        give(following)

    def _delete(self, path: str) -> None:
        try:
            self.storage.delete(path)
        except StorageError as err:
            # Nobody reads it again; the batches, or why they failed, matter more.
            logger.warning("The plan %s could not be deleted: %s", path, err.what)

    def _run(self, archive: Path, arguments: list[str]) -> None:
        self._failure = None
        batches = counted(self._batch_count, "batch", "batches")
        self._hook = self._make_hook(archive)
        if self._cancelled:
            self._hook.end()
        self.report(
            f"starting Spark for {batches} (about 7 s; the first run "
            f"downloads Delta's jars). Spark's log: {self.log_file}"
        )
        try:
            self._hook.run(application.SCRIPT, arguments)
        except ScopeProviderError as err:
            if self._cancelled or (self._failure is None and self._done < self._batch_count):
                raise
            if self._failure is None:
                # The caller looks at the table, which knows better than the end of a process.
                logger.warning("Spark failed after it had run all batches: %s", err.what)
        finally:
            self._hook = None
        if self._error_while_waiting is not None:
            raise self._error_while_waiting
        if self._failure is not None:
            raise self._reported_error(self._failure)

    def _make_hook(self, archive: Path) -> SubmitHook:
        local = self.engine.spark_conn_id is None
        conf = {**application.REQUIRED_CONF, **(application.LOCAL_CONF if local else {})}
        environment: dict[str, str] = {}
        reached: list[Store | Database] = [*self.stores, *([self.database] if self.database else [])]
        for store in reached:
            conf.update(store.spark_conf)
            environment.update(store.environment)
        conf.update(self.engine.conf or {})
        conf.update({name: setting.value for name, setting in EXACT_AT_START.items()})
        packages = self.engine.packages
        if packages is None and not self.engine.jars:
            needed = (name for store in reached for name in store.packages)
            packages = tuple(dict.fromkeys([application.delta_package(), *needed]))
        return SubmitHook(
            conn_id=self.engine.spark_conn_id,
            log_file=self.log_file,
            on_event=self._on_event,
            conf=conf,
            environment=environment,
            packages=",".join(packages) if packages else None,
            exclude_packages=",".join(application.EXCLUDED_PACKAGES) if packages else None,
            jars=",".join(self.engine.jars) if self.engine.jars else None,
            py_files=str(archive),
            name="airflow-provider-scope",
        )

    def _on_event(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        if kind == "failed":
            self._failure = event["error"]
        elif kind == "columns":
            self.report(f"batch {event['seq']}: {event['told']}")
        elif kind == "notice" and event["told"] not in self._warned:
            self._warned.add(event["told"])  # once for all batches
            logger.warning("batch %s: %s", event["seq"], event["told"])
        elif kind == "batch":
            self._done += 1
            version = event["version"]
            outcome = "was in the table already" if version is None else f"is version {version}"
            self.report(f"batch {event['seq']}: {event['what']}, {outcome} ({event['seconds']:.1f} s)")
        elif kind == "waiting" and self._give_more:
            self._give_more()

    def _reported_error(self, failure: dict[str, str]) -> ScopeProviderError:
        """Give the application's own error, as the class that it was there."""
        error = SparkJobFailedError.from_dict(failure)
        end = "\n" if "\n" in error.do else ". "  # behind a list, it is no part of the last choice
        error.do = f"{error.do}{end}Full log: {self.log_file}"
        return error
