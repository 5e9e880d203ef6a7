"""The Spark engines: the batches of a run become a plan, which an application or a session runs."""

from __future__ import annotations

import logging
import tempfile
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.columns import declared, split_columns
from airflow_provider_scope.engines import application
from airflow_provider_scope.engines.places import quarantine_of
from airflow_provider_scope.engines.server import ServedHook
from airflow_provider_scope.engines.submit import SubmitHook, check_java
from airflow_provider_scope.exceptions import (
    InputError,
    ScopeProviderError,
    SparkJobFailedError,
    StorageError,
)
from airflow_provider_scope.protocol.engine import Engine
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.settings import EXACT_AT_START
from airflow_provider_scope.specs import Replace
from airflow_provider_scope.specs.write import for_plan, with_own_columns
from airflow_provider_scope.stores.kinds import place_of
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_scope.hooks.databases import Database
    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.recovery import Baseline, TableState
    from airflow_provider_scope.specs import SparkEngine
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage, Store

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class PlanEngine(Engine):
    """Base of the engines that let another process run the batches, by ``spark.app.run`` and a plan.

    :param ingest: What the user wrote, with canonical URIs of the folders.
    :param settings: What the user says of Spark.
    :param stores: What Spark needs to reach, by URI: the source, the table and the checkpoint.
    :param report: Takes each line of progress.
    :param storage: Where the checkpoint is.
    :param table_storage: Where the table is.
    :param database: The database that is read, if one is.
    """

    ingest: Ingest
    settings: SparkEngine
    stores: Mapping[str, Store]
    report: Callable[[str], None]
    storage: Storage
    table_storage: Storage
    database: Database | None = field(default=None, repr=False)

    def probe(self, location: str, pipeline: str | None, baseline: Baseline) -> TableState:
        """Look at the table, without a JVM."""
        return probe(location, pipeline, baseline, self.table_storage)

    def run(self, work: Work, entries: Sequence[OffsetEntry], more: More | None = None) -> None:
        """Run the batches in one application, and those that follow from them."""
        self._submit(work, entries, fence=False, more=more)

    def fence(self, work: Work, entry: OffsetEntry) -> None:
        """Commit an empty transaction in place of a batch."""
        self._submit(work, [entry], fence=True)

    def plan(self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool) -> plans.Plan:
        ingest, table = self.ingest, self.ingest.table
        log = CheckpointLog(self.storage, work.checkpoint)
        if ingest.source.puts_bad_records_aside and not fence:
            quarantines = log.use_quarantine(quarantine_of(work.table, table.quarantine))
        else:
            quarantines = log.quarantines()
        is_inferred = ingest.source.infers_columns and work.columns
        return plans.Plan(
            pipeline=work.pipeline,
            table=work.table,
            checkpoint=work.checkpoint,
            batches=tuple(entry.seq for entry in entries),
            source=ingest.source,
            inferred_columns=dict(split_columns(work.columns or "")) if is_inferred else None,
            replaces=isinstance(ingest.write, Replace),
            sql=ingest.sql,
            sql_params=ingest.sql_params,
            spec=replace(table, columns=with_own_columns(declared(table.columns), ingest.write)),
            write=for_plan(ingest.write),
            # Of a table that was moved to another store, those of before are out of reach.
            quarantines=tuple(q for q in quarantines if place_of(q) == place_of(work.table)),
            first=work.first,
            fence=fence,
            reads_only=work.reads_only,
            empties=fence and any(entry.mode == "overwrite" for entry in entries),
        )

    def reached(self) -> list[Store | Database]:
        """Return what Spark connects to."""
        return [*self.stores.values(), *([self.database] if self.database else [])]

    def environment(self) -> dict[str, str]:
        """Return the variables that Spark needs to reach them; no secrets."""
        return {name: value for store in self.reached() for name, value in store.environment.items()}

    def conf(self, *parts: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of the application; the later ones win.

        :param parts: What comes after those that each application needs, and before those of the user.
        """
        exact = {name: setting.value for name, setting in EXACT_AT_START.items()}
        conf = dict(application.REQUIRED_CONF)
        for part in (*parts, self.settings.conf or {}, exact):
            conf.update(part)
        return conf

    def packages(self) -> tuple[str, ...]:
        """Return the Maven coordinates that the user names, else those of Delta and of what Spark lacks.

        Those of the setting in ``conf`` are among them: Spark takes it only if it is given no others.

        :raises InputError: Delta or pyspark is not installed.
        """
        of_conf = str((self.settings.conf or {}).get("spark.jars.packages") or "").replace(" ", "")
        named = [name for name in of_conf.split(",") if name]
        needed = [package for store in self.reached() for package in store.packages]
        needed += application.packages_for(self.ingest.source)
        if self.settings.packages is not None or self.settings.jars:
            return (*self.settings.packages, *named) if self.settings.packages else ()
        return tuple(dict.fromkeys([application.delta_package(), *needed, *named]))

    def _delete(self, path: str) -> None:
        try:
            self.storage.delete(path)
        except StorageError as err:
            # Nobody reads it again; the batches, or why they failed, matter more.
            logger.warning("The plan %s could not be deleted: %s", path, err.what)

    @abstractmethod
    def _submit(
        self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, more: More | None = None
    ) -> None:
        """Run the plan of some batches, and then those of the batches that follow."""


def check_no_jobs(log: CheckpointLog, entries: Sequence[OffsetEntry]) -> None:
    """Refuse to run batches that have SCOPE jobs, which Spark cannot check.

    :raises InputError: As said.
    """
    with_jobs = [entry.seq for entry in entries if log.attempts(entry.seq)]
    if with_jobs:
        raise InputError(
            f"Batch {with_jobs[0]} of {log.location} is open and has SCOPE jobs, which Spark cannot check.",
            kept="the table, the log and all files; nothing was started",
            do="settle it before you change the engine of the pipeline: run the task once with SCOPE, or "
            "abandon the batch with --engine scope",
        )


@dataclass(kw_only=True)
class SubmitEngine(PlanEngine):
    """Runs the plans in an application that ``spark-submit`` starts, one for all batches of a run.

    :param log_file: Where the application's whole output goes.
    :param new_id: Names the plan file.
    :param task: ``<dag>.<task>``; a server is listed with the one that started it.
    """

    log_file: Path
    new_id: Callable[[], str]
    task: str
    _hook: SubmitHook | None = field(default=None, init=False, repr=False)
    _cancelled: bool = field(default=False, init=False, repr=False)

    def cancel(self) -> None:
        """End the application; one that has not started yet never does."""
        self._cancelled = True
        if self._hook:
            self._hook.end()

    def server_command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command and the variables of the Spark server that runs the plans of this engine.

        :raises InputError: The engine uses no server, or one runs already.
        :raises JavaMissingError: There is no Java that Spark runs on.
        """
        check_java()
        with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-") as folder:
            archive = Path(folder, "application.zip")
            application.write_zip(archive)
            hook = self._make_hook(archive, ApplicationEvents(self.report))
            if not isinstance(hook, ServedHook):
                raise InputError(
                    f"The engine of {self.task} uses no server: each run starts Spark and ends it.",
                    kept="everything; nothing was started",
                    do='set server="auto" in its SparkEngine, and start the server again',
                )
            return hook.server_command()

    def _submit(
        self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, more: More | None = None
    ) -> None:
        check_java()
        first = f"{work.checkpoint}/plans/{self.new_id()}"
        paths: list[str] = []

        def give(entries: Sequence[OffsetEntry]) -> None:
            paths.append(plans.path(first, len(paths)))
            self.storage.replace(paths[-1], plans.encode(self.plan(work, entries, fence=fence)))
            if not fence:
                check_no_jobs(CheckpointLog(self.storage, work.checkpoint), entries[:1])

        events = ApplicationEvents(self.report, give, more)
        try:
            events.give(entries)
            prefix = "airflow-provider-scope-"
            with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
                archive = Path(folder, "application.zip")
                application.write_zip(archive)
                self._run(archive, [first, *([plans.MORE] if more else [])], events)
        finally:
            for path in paths:
                self._delete(path)

    def _run(self, archive: Path, arguments: list[str], events: ApplicationEvents) -> None:
        self._hook = self._make_hook(archive, events)
        if self._cancelled:
            self._hook.end()
        batches = counted(events.batch_count, "batch", "batches")
        self.report(f"{self._hook.beginning.format(batches)}. Spark's log: {self.log_file}")
        try:
            self._hook.run(application.SCRIPT, arguments)
        except ScopeProviderError as err:
            if self._cancelled or (events.failure is None and events.done < events.batch_count):
                raise
            if events.failure is None:
                # The caller looks at the table, which knows better than the end of a process.
                logger.warning("Spark failed after it had run all batches: %s", err.what)
        finally:
            self._hook = None
        events.check(f"Full log: {self.log_file}")

    def _make_hook(self, archive: Path, events: ApplicationEvents) -> SubmitHook:
        settings = self.settings
        of_this_machine = application.LOCAL_CONF if settings.spark_conn_id is None else {}
        make = partial(ServedHook, task=self.task) if settings.server == "auto" else SubmitHook
        return make(
            conn_id=settings.spark_conn_id,
            log_file=self.log_file,
            on_event=events.take,
            conf=self.conf(of_this_machine, *(store.spark_conf for store in self.reached())),
            environment=self.environment(),
            packages=self.packages(),
            jars=settings.jars or (),
            py_files=str(archive),
            name="airflow-provider-scope",
        )


class ApplicationEvents:
    """What one application was given, and what it tells.

    :param write_plan: Writes the plan of further batches where the application looks for it.
    :param more: Gives these batches; None if the application does not wait for any.
    """

    def __init__(
        self,
        report: Callable[[str], None],
        write_plan: Callable[[Sequence[OffsetEntry]], None] | None = None,
        more: More | None = None,
    ) -> None:
        self.batch_count = self.done = 0
        """How many batches it was given, and has committed."""
        self.failure: ScopeProviderError | None = None
        """The error that ended it, as it told it."""
        self._report = report
        self._write_plan = write_plan
        self._more = more
        self._error_while_waiting: ScopeProviderError | None = None
        """What went wrong here while it waited."""
        self._messages: set[str] = set()
        """What it told already: a batch with something bad in it is read more than once."""

    def give(self, entries: Sequence[OffsetEntry]) -> None:
        self.batch_count += len(entries)
        if self._write_plan:
            self._write_plan(entries)

    def take(self, event: dict[str, Any]) -> None:
        """Take what the application tells, and answer one that waits."""
        kind = event["event"]
        if kind == "failed":
            self.failure = SparkJobFailedError.from_dict(event["error"])
        elif kind == "columns" and self._is_new(message := f"batch {event['seq']}: {event['message']}"):
            self._report(message)
        elif kind == "notice" and self._is_new(event["message"]):  # once for all batches
            logger.warning("batch %s: %s", event["seq"], event["message"])
        elif kind == "batch":
            self.done += 1
            version = event["version"]
            outcome = "was in the table already" if version is None else f"is version {version}"
            self._report(f"batch {event['seq']}: {event['what']}, {outcome} ({event['seconds']:.1f} s)")
        elif kind == "waiting" and self._more:
            self.give(self._following(self._more))

    def _is_new(self, message: str) -> bool:
        is_new = message not in self._messages
        self._messages.add(message)
        return is_new

    def _following(self, more: More) -> Sequence[OffsetEntry]:
        """Return the batches that follow; none ends the application."""
        try:
            return more()
        except ScopeProviderError as err:
            self._error_while_waiting = err  # for when it has ended
            return ()

    def check(self, hint: str) -> None:
        """Raise what went wrong, now that the application has ended.

        :param hint: Where the reader of the error finds more.
        :raises ScopeProviderError: The application's own error, as the class that it was there.
        """
        if self._error_while_waiting is not None:
            raise self._error_while_waiting
        if self.failure is not None:
            end = "\n" if "\n" in self.failure.do else ". "  # after a list, it is no part of the last choice
            self.failure.do += f"{end}{hint}"
            raise self.failure
