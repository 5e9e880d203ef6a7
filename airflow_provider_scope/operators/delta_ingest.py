"""What is new in a source goes into a Delta table, exactly once."""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.providers.common.compat.sdk import conf
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk.log import mask_secret

from airflow_provider_scope import validation
from airflow_provider_scope.columns import is_late
from airflow_provider_scope.engines.clock import now_ms
from airflow_provider_scope.engines.places import check_literal_places
from airflow_provider_scope.exceptions import InputError, JobRunningError, ScopeProviderError
from airflow_provider_scope.hooks.settings import connection_of
from airflow_provider_scope.operators.base import (
    JobWaitingOperator,
    PollSeconds,
    address_of,
    check_names,
    emit,
    engine_of,
    fail,
    mapped_late,
    warn_on_failure,
    without_assets,
)
from airflow_provider_scope.protocol.commands import Address
from airflow_provider_scope.specs import Checkpoint, ScopeEngine, SparkEngine, TableSpec
from airflow_provider_scope.specs.engine import may_outlive_task
from airflow_provider_scope.specs.ingest import (
    ARGUMENTS,
    SELECT_ALL,
    TEMPLATES,
    WITH_COLUMNS,
    Ingest,
    ingest_from,
    mode_from,
)
from airflow_provider_scope.specs.write import WriteSpec, warning_of, write_to_dict
from airflow_provider_scope.triggers.job import SHORTEST_HOLD_SECONDS
from airflow_provider_scope.values import Window, iso_time, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from airflow.providers.common.compat.sdk import BaseOperatorLink
    from airflow.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from airflow_provider_scope.engines.assembly import RunContext
    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.sources import AnySource


DEFAULT_DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
WAIT = "wait"
"""The key in XCom of the job that a task waits for; Airflow clears it when a new try begins."""


class DeltaIncrementalIngestOperator(JobWaitingOperator):
    """Load what is new in a source into a Delta table, exactly once, in batches.

    Every run lists the source once, leaves out the files that the checkpoint's log holds, and cuts the rest
    into batches. Each batch is logged before it runs, and recorded after it is committed. If a run dies at
    any point, the next one completes it: no row is lost and none is doubled.

    Where an argument takes a spec of ``airflow_provider_scope.specs``, it takes a dict of the same fields,
    too. The arguments in ``template_fields`` may hold templates or XComArgs.

    :param delta_location: Path or URI of the table. It is created by the first batch. With ``ScopeEngine``
        it may be left out if the connection has storage account and container: the table's folder is the
        task's id then, below the connection's base path.
    :param source: The files (``FileSource``), a table or a database by a cursor column (``TableSource``,
        ``JdbcSource``), or the changes of a table (``CdfSource``).
    :param sql: A SELECT over ``@data``, the files of one batch: text or a ``.sql`` file. It may name
        the virtual columns ``source_file_uri``, ``source_file_length``, ``source_file_created`` and
        ``source_file_modified``. Its columns are matched to the table's by name.
    :param sql_dialect: ``"spark"``, the only one the Spark engine takes; None is the same.
    :param sql_params: Values for ``:name`` in ``sql``, passed by Spark and never pasted into the text.
    :param table: Columns, partitioning and properties, where the SELECT does not say them.
    :param write: ``"append"``, ``"replace"`` (every run replaces the table by the rows of all files) or
        ``Replace(where=...)`` (the same for the rows of a range), ``Merge(...)`` (rows take the place of
        those with the same keys), or ``Scd2(...)`` (every version of a row stays, with its time).
    :param engine: What runs the batches. The default is Spark in the task's own process group.
    :param mode: ``"incremental"``: one log, new files since the last run. ``"data_interval"``: a log for each
        data interval, the files that were modified in it; for catchup and backfill.
    :param window_start: With ``mode="data_interval"``: files modified at this time or later, instead of the
        run's data interval. A datetime with time zone, or ISO-8601 text; None, and a template that renders
        to nothing, is the data interval.
    :param window_end: Files modified before this time; given with ``window_start`` or not at all.
    :param full_refresh: Load everything again, replacing the table. May be a template.
    :param max_batches_per_run: New batches in one run at the most; the rest waits for the next run.
    :param checkpoint: Where the log is kept; below the table by default.
    :param first_run: What the first run of a pipeline does if the table holds rows: ``"refuse"``, because
        they may be those of its files, or ``"add"`` its files to them, as the second task that loads one
        table has to. With ``"add"``, a checkpoint that was lost goes unnoticed: all files are loaded again.
    :param storage_conn_id: The connection of the store of files, table and checkpoint; disks need none.
    :param deferrable: Free the worker while a remote job runs, or while the last files of an interval are
        younger than ``safety_buffer_seconds``. Spark in local and in client mode runs in the worker itself.
    :param poll_interval: Seconds between two looks at a remote job; None is the connection's.
    :return: The run's report, as XCom: batches, files, rows, bytes, what was left out and why.
    :raises InputError: An argument is not valid; when the DAG is parsed, as far as it is known then.
    """

    template_fields: Sequence[str] = (*TEMPLATES,)
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"sql": "sql"}
    ui_color = "#dcecf5"

    def __init__(
        self,
        *,
        delta_location: str | None = None,
        source: AnySource | Mapping[str, Any],
        sql: str = SELECT_ALL,
        sql_dialect: str | None = None,
        sql_params: Mapping[str, Any] | None = None,
        table: TableSpec | Mapping[str, Any] | None = None,
        write: str | WriteSpec | Mapping[str, Any] = "append",
        engine: SparkEngine | ScopeEngine | Mapping[str, Any] | None = None,
        mode: str = "incremental",
        window_start: str | datetime | None = None,
        window_end: str | datetime | None = None,
        full_refresh: bool | str = False,
        max_batches_per_run: int | None = None,
        checkpoint: Checkpoint | Mapping[str, Any] | None = None,
        first_run: str = "refuse",
        storage_conn_id: str | None = None,
        deferrable: bool = DEFAULT_DEFERRABLE,
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        if mode_from(mode) == "incremental":
            # Two runs at once are safe, but they would do the same work twice. An argument goes before
            # the default_args of the Dag, where Airflow leaves this one for its own class.
            default = (kwargs.get("default_args") or {}).get("max_active_tis_per_dag", 1)
            kwargs.setdefault("max_active_tis_per_dag", default)
        check_names(type(self), kwargs)
        super().__init__(**kwargs)
        self.delta_location = delta_location
        # Plain dicts, not specs: Airflow renders templates in dicts, finds XComArgs in them, and copies
        # them for each run; a frozen spec cannot be rendered and a mutable one would leak values.
        self.source = _plain(source)
        self.sql = sql
        self.sql_dialect = sql_dialect
        self.sql_params = _plain(sql_params or {})
        self.table = _plain(table or {})
        self.write = _plain(write)
        self.engine = _plain(engine or {})
        self.mode = mode
        self.window_start = window_start
        self.window_end = window_end
        self.full_refresh = full_refresh
        self.max_batches_per_run = max_batches_per_run
        self.checkpoint = _plain(checkpoint or {})
        self.first_run = first_run
        self.storage_conn_id = storage_conn_id
        self.deferrable = deferrable
        self.poll_interval = validation.check("poll_interval", poll_interval, PollSeconds | None)
        self._runner: Engine | None = None
        self._ti: Any = None
        self._late = [name for name in WITH_COLUMNS if is_late(getattr(self, name))]
        ingest = self.ingest()
        if ingest:
            check_literal_places(ingest)
        if ingest and isinstance(ingest.engine, ScopeEngine):
            from airflow_provider_scope.scope.script import check_scope

            check_scope(ingest)

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Do as Airflow does, with dicts in place of specs: it does not find an XComArg in a spec."""
        plain = {name: _plain(value) if name in ARGUMENTS else value for name, value in kwargs.items()}
        return super().partial(**plain)

    @property
    def operator_extra_links(self) -> Collection[BaseOperatorLink]:  # type: ignore[override]
        """Return the button of the newest job, unless the batches run in the task's own process group."""
        return JobWaitingOperator.operator_extra_links if may_outlive_task(engine_of(self)) else ()

    def ingest(self, map_index: int | None = None) -> Ingest | None:
        """Return the arguments as they are now, validated; None if one is known only when the task runs.

        :raises InputError: A value is not valid.
        """
        late = {*self._late, *mapped_late(self, map_index)}
        return ingest_from({name: getattr(self, name) for name in ARGUMENTS}, late)

    def _do_render_template_fields(self, parent: Any, *args: Any, **kwargs: Any) -> None:
        """Render, and let Airflow hide the secrets of Spark's settings: it knows few of their names itself.

        This is what Airflow calls for a mapped task, too.
        """
        super()._do_render_template_fields(parent, *args, **kwargs)
        settings = self.engine.get("conf") if parent is self and isinstance(self.engine, Mapping) else None
        if isinstance(settings, Mapping):
            from airflow_provider_scope.engines.submit import secret_values

            for value in secret_values(settings):
                mask_secret(value)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run once; the values are rendered now, and validated again."""
        return self._run(context, None)

    def _run(self, context: Context, first_batch: int | None, *, resumed: bool = False) -> dict[str, Any]:
        from airflow_provider_scope.engines.assembly import assemble

        ti = self._ti = context["ti"]
        ingest: Ingest | None = None
        address = Address()
        try:
            ingest = self.ingest(ti.map_index)
            if ingest is None:
                raise validation.bad("source", self.source, "a value that is known when the task runs")
            if ingest.mode == "data_interval":
                window = ingest.window or window_of_run(context)
                ingest = replace(ingest, window=window)
                self._wait_until_over(window, ingest.source.safety_buffer_seconds)
            index = ti.map_index if _is_mapped(ti) else None
            address = address_of(ingest, (self.dag_id, self.task_id), index, self.storage_conn_id)
            run = self._run_context(context, resumed=resumed)
            if warning := warning_of(ingest.write):
                self.log.warning(warning)
            execution, request, self._runner = assemble(ingest, run)
            address = replace(address, table=address.table or request.table)
            report = execution.run(replace(request, first_batch=first_batch, address=address))
        except JobRunningError as err:
            self._defer(ingest, err, execution.first_batch)
        except ScopeProviderError as err:
            err.do = address.complete(err.do)
            fail(err, self.log)
        finally:
            self._note_job(ingest)
            self._runner = None
        result: dict[str, Any] = {}
        with warn_on_failure(self.log, "The report cannot be shown"):
            # Files that are there, and none that counts: most likely the patterns are not what was meant.
            is_odd = report.matches_nothing or report.warning_texts
            level = logging.WARNING if is_odd else logging.INFO
            self.log.log(level, "%s\n%s", request.table, report.text())
        with warn_on_failure(self.log, "The report is not in XCom"):
            result = report.to_xcom()
        if report.loaded_nothing and ti.try_number == 1:
            # Airflow emits an event for each asset among the outlets of a task that succeeds. A second try
            # may find nothing because the first one has loaded it and died.
            self.outlets = without_assets(self.outlets)
        emit(context, self.outlets, result, table=request.table, log=self.log)
        return result

    def resume(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Go on after a wait: like ``execute``, from the start, with what the log and the jobs say now."""
        if event is None:
            # Its trigger was lost. Of a wait for an interval, XCom has nothing.
            with warn_on_failure(self.log, "It is not known where this run began"):
                ti = context["ti"]
                event = ti.xcom_pull(task_ids=self.task_id, key=WAIT, map_indexes=ti.map_index)
        self.log.info("resumed: %s", event)
        return self._run(context, (event or {}).get("first_batch"), resumed=event is not None)

    def resume_when_over(self, context: Context, event: Any = None) -> dict[str, Any]:  # noqa: ARG002 - Airflow's
        """Begin now that all files of the interval are old enough."""
        return self._run(context, None)

    def _wait_until_over(self, window: Window, safety_buffer_seconds: float) -> None:
        """Wait until every file of the interval is old enough: no other run would take those held back.

        :raises TaskDeferred: The triggerer waits.
        """
        now = now_ms()
        seconds = seconds_until_over(window, safety_buffer_seconds, now)
        self.log.info("interval %s", window.name)
        if not seconds:
            return
        self.log.info("waiting %.1f s, until its last files are older than safety_buffer_seconds", seconds)
        if self.deferrable and seconds >= SHORTEST_HOLD_SECONDS:
            moment = datetime.fromtimestamp(now / 1000 + seconds, UTC)
            self.defer(trigger=DateTimeTrigger(moment=moment), method_name="resume_when_over")
        time.sleep(seconds)

    def _defer(self, ingest: Ingest | None, running: JobRunningError, first: int | None) -> NoReturn:
        conn_id = ingest.engine.conn_id if ingest else None
        if conn_id is None:
            msg = "what runs in the task's own process group is not waited for"
            raise TypeError(msg)
        with warn_on_failure(self.log, "If its trigger is lost, a refresh of this run begins again"):
            self._ti.xcom_push(WAIT, {"job_id": running.job_id, "first_batch": first})
        self.wait_in_triggerer(running, conn_id, first, self.storage_conn_id)

    def _run_context(self, context: Context, *, resumed: bool) -> RunContext:
        from airflow_provider_scope.engines.assembly import RunContext

        return RunContext(
            task=f"{self.dag_id}.{self.task_id}",
            task_id=self.task_id,
            # The instances of a mapped task have one id, and must not share a table by accident.
            table_name="" if _is_mapped(context["ti"]) else self.task_id,
            log_file=_log_file(context),
            report=self._progress(context),
            storage_conn_id=self.storage_conn_id,
            deferrable=self.deferrable,
            poll_interval=self.poll_interval,
            deadline=self.deadline(context["ti"]),
            resumed=resumed,
        )

    def _progress(self, context: Context) -> Callable[[str], None]:
        store = context.get("task_state_store")

        def write(line: str) -> None:
            self.log.info(line)
            if store is not None:
                with warn_on_failure(self.log, "The progress is not in the task's state"):
                    store.set("progress", line[:500])

        return write

    def on_kill(self) -> None:
        """End the Spark application, or the SCOPE job if the task is over for good.

        What was committed is recorded by the next try. A task that is cleared or retried goes on with the
        same SCOPE job, so it is left alone then.
        """
        if not self._runner:
            return
        if self._runner.outlives_task and not self.is_over(self._ti):
            self.log.info("the task is not over: its job goes on")
            return
        self._runner.cancel()

    def _note_job(self, ingest: Ingest | None) -> None:
        """Keep the address of the newest job, for its button."""
        if self._runner and self._runner.newest_job and ingest and ingest.engine.conn_id:
            from airflow_provider_scope.engines.jobs import jobs_of

            with warn_on_failure(self.log, "The button to the job is missing"):
                jobs = jobs_of(connection_of(ingest.engine.conn_id))
                self.job_url = jobs.url_of(self._runner.newest_job)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, ScopeEngine):
            # Its connection tells it from Spark's, so it is there even if it is the default.
            return {"scope_conn_id": value.scope_conn_id, **validation.to_dict(value)}
        if isinstance(value, WriteSpec):
            return write_to_dict(value)
        return {name: _plain(inner) for name, inner in validation.to_dict(value).items()}
    return {name: _plain(inner) for name, inner in value.items()} if isinstance(value, Mapping) else value


def _is_mapped(ti: Any) -> bool:
    return ti.map_index not in (None, -1)


def _log_file(context: Context) -> Path:
    """Return the file for Spark's output, beside Airflow's own logs."""
    ti = context["ti"]
    base = conf.get("logging", "base_log_folder", fallback=tempfile.gettempdir())
    parts = [
        ti.dag_id,
        ti.run_id,
        f"{ti.task_id}.{ti.map_index}" if _is_mapped(ti) else ti.task_id,
    ]
    safe = [re.sub(r"[^\w.+-]", "_", part) for part in parts]
    return Path(base, "airflow_provider_scope", *safe, f"spark.{ti.try_number}.log")


# ---- the interval that a run loads, and when it may begin ----


CLOCKS_DIFFER_SECONDS = 60.0
"""The scheduler's clock says when an interval is over, the worker's says what time it is."""
_KEPT = "everything; nothing was read or written"


def window_of_run(context: Mapping[str, Any]) -> Window:
    """Return the data interval of a run.

    :raises InputError: The run has none, or an empty one.
    """
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise InputError(
            "This run was started manually or by an asset. It has no data interval, and "
            'mode="data_interval" loads the files of one.',
            kept=_KEPT,
            do="set window_start and window_end to say which files it loads. They may be templates: "
            'window_start="{{ params.window_start }}". A template that gives an empty text stands for the '
            "bound of the data interval",
        )
    if start >= end:
        raise InputError(
            f"The data interval of this run is empty: it begins and ends at {start.isoformat()}. A cron "
            "expression as the Dag's schedule gives such intervals; so can a manual run for a time at "
            "which clocks change.",
            kept=_KEPT,
            do='write schedule=CronDataIntervalTimetable("@daily", timezone="UTC"), from airflow.sdk, with '
            "catchup=True. Then delete the Dag's runs that failed like this one: Airflow continues after "
            "the last existing run, and would skip their intervals. For a manual run, set window_start and "
            "window_end",
        )
    return Window(milliseconds(start), milliseconds(end))


def seconds_until_over(window: Window, safety_buffer_seconds: float, now_ms: int) -> float:
    """Return how long no file of a window may be taken yet; 0 if all of them may.

    :raises InputError: The window ends in the future.
    """
    if window.end_ms - now_ms > CLOCKS_DIFFER_SECONDS * 1000:
        raise InputError(
            f"The interval ends at {iso_time(window.end_ms)}, in the future: what is still to come would be "
            "left out.",
            kept=_KEPT,
            do="run it when it is over, or give an earlier window_end",
        )
    return max(0.0, (window.end_ms - now_ms) / 1000 + safety_buffer_seconds)
