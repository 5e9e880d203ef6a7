"""The Spark engine of a cluster: applications that a manager runs, and that outlive their worker."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from urllib.parse import quote

from airflow_provider_scope.engines import application
from airflow_provider_scope.engines.application import KEPT
from airflow_provider_scope.engines.manager import Application
from airflow_provider_scope.engines.spark import ApplicationEvents, PlanEngine, check_no_jobs
from airflow_provider_scope.engines.submit import secret_values
from airflow_provider_scope.exceptions import (
    InputError,
    JobRunningError,
    ScopeProviderError,
    SparkJobFailedError,
    StorageError,
)
from airflow_provider_scope.failures import CAUSE_LENGTH, passing_advice, submit_cause
from airflow_provider_scope.protocol.log import CheckpointLog
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.local import SCHEME
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import counted, is_below
from airflow_provider_scope.waiting import outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.engines.manager import Manager
    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.specs import SparkEngine
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.waiting import Job, JobWait

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(?P<pipeline>.+)-(?P<seq>\d+)-(?P<number>\d+)(?:\.(?P<plan>\d+))?")


class _Begun(NamedTuple):
    """An application whose name was written down, and that may run."""

    seq: int
    """The first batch that it was given."""
    number: int
    """How many applications began with the same batch before."""
    prefix: str
    """How the names of its plans begin: their folder, and its pipeline."""
    numbers: tuple[int, ...] = (0,)
    """Numbers of its plans that still exist, ascending; those between them were run, and are deleted."""

    @property
    def name(self) -> str:
        return self.place(0).rpartition("/")[2]

    @property
    def newest(self) -> str:
        """The place of the plan that it was given last."""
        return self.place(self.numbers[-1])

    @property
    def next(self) -> str:
        """The place of the plan that it will wait for."""
        return self.place(self.numbers[-1] + 1)

    def place(self, number: int) -> str:
        return plans.path(f"{self.prefix}-{self.seq}-{self.number}", number)


@dataclass(kw_only=True)
class ClusterEngine(PlanEngine):
    """Runs the plans in applications that a cluster's manager runs.

    An application is named ``<pipeline>-<its first batch>-<number>``. Its plan lies below that name in the
    checkpoint's ``plans/`` before it is submitted. So each try finds those of the tries before, asks the
    manager what became of them, and waits for one that runs. If batches follow from each other, it waits for
    its next plan, ``<name>.1``, ``<name>.2``, …, and ends by itself if none comes in time. Whatever is lost,
    or the manager says or forgets, the transactions of the table decide what is loaded, and an application
    that runs twice changes nothing.

    :param wait: The manager, and how its applications are waited for.
    :param resumed: Whether this try has waited for an application before: one that failed meanwhile fails it.
    """

    wait: JobWait[Manager]
    resumed: bool = False
    outlives_task: ClassVar[bool] = True
    newest_job: str | None = field(default=None, repr=False)
    _running: str | None = field(default=None, init=False, repr=False)
    """The application that is being submitted, or waited for."""
    _is_cancelled: bool = field(default=False, init=False, repr=False)

    @property
    def manager(self) -> Manager:
        """What runs the applications."""
        return self.wait.jobs

    def cancel(self) -> None:
        """End the application, and see that it has ended; one that is being submitted is ended then."""
        self._is_cancelled = True
        if self._running:
            self._end(self._running)

    def finish(self, checkpoint: str) -> None:
        """Tell the application that this task has waited for that no further batches come."""
        if not self.resumed:
            return
        try:
            for begun in _begun(self.storage, checkpoint)[-1:]:
                data = self.storage.read(plans.events_path(begun.newest))
                if plans.waits(data):
                    self._give_none(checkpoint, begun)
                    events = ApplicationEvents(self.report)
                    for event in plans.events(data):
                        events.take(event)
        except StorageError as err:
            logger.warning("The application waits for further batches until it gives up: %s", err.what)

    def _submit(
        self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, more: More | None = None
    ) -> None:
        while entries:
            begun = self._find_begun(work, entries, fence=fence)
            if begun is None:
                begun = self._begin(work, entries, fence=fence, follows=more is not None)
                if self._is_cancelled:
                    self._end(begun.name)
            entries = self._follow(work, begun, entries, more)

    # ---- applications that were begun before ------------------------------------------------------

    def _find_begun(self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool) -> _Begun | None:
        """Return the application that runs, or that has ended since this task began to wait for it.

        One that runs is ended if batches are to be closed.
        """
        running = ended = None
        for begun in _begun(self.storage, work.checkpoint):
            job = self.manager.get_job(begun.name)
            if job is not None and outcome(job) == "waiting":
                if fence:
                    self._end(begun.name)
                    continue
                self.report(f"the application {begun.name} of an earlier try is still running")
                running = begun
            elif self.resumed and not fence:
                ended = begun  # the newest at last
            elif begun.seq < entries[0].seq or len(begun.numbers) > 1:
                self._forget(begun)
        self.resumed = False
        return running or ended

    def _forget(self, begun: _Begun) -> None:
        """Delete what is left of an application whose first batch is settled."""
        for number in begun.numbers:
            self.storage.delete(plans.events_path(begun.place(number)))
            self.storage.delete(begun.place(number))

    def _end(self, name: str) -> None:
        self.manager.cancel_job(name)
        self.wait.await_end(name)

    # ---- a new one --------------------------------------------------------------------------------

    def _begin(self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, follows: bool) -> _Begun:
        """Write the plan down under a new name, and submit it.

        A name under which a run wrote this plan, and died before it submitted it, is used again.

        :param follows: Whether the application is to wait for further plans.
        """
        self.wait.check_time(f"of {counted(len(entries), 'batch', 'batches')}")
        plan = plans.encode(self.plan(work, entries, fence=fence))
        for number in itertools.count():
            begun = _Begun(entries[0].seq, number, f"{_folder(work.checkpoint)}/{work.pipeline}")
            if (
                self.storage.put_if_absent(begun.newest, plan) == plan
                and self.manager.get_job(begun.name) is None
            ):
                break
        if not fence:
            check_no_jobs(CheckpointLog(self.storage, work.checkpoint), entries[:1])
        # There are events if the manager has forgotten an application of this name.
        self.storage.delete(plans.events_path(begun.newest))
        with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-") as folder:
            archive = Path(folder, "application.zip")
            application.write_zip(archive)
            self._running = begun.name
            self.manager.submit(self._application(work, begun, archive, follows=follows))
        self.report(
            f"submitted the application {begun.name} with {counted(len(entries), 'batch', 'batches')}"
        )
        return begun

    def _application(self, work: Work, begun: _Begun, archive: Path, *, follows: bool) -> Application:
        # What a connection says may be secret, and half of an identity is none.
        of_stores = [
            store.spark_conf if self.manager.keeps_secrets else kind_of(uri).spark_conf
            for uri, store in self.stores.items()
        ]
        return Application(
            name=begun.name,
            script=Path(application.SCRIPT),
            archive=archive,
            arguments=(begun.newest, plans.REPORT, *([plans.MORE] if follows else [])),
            conf=self.conf(*of_stores),
            environment=self.environment(),
            packages=self.packages(),
            jars=self.settings.jars or (),
            stage=lambda file: self._stage(work, file),
        )

    def _stage(self, work: Work, file: Path) -> str:
        """Put a file below the checkpoint, under a name that its content has alone.

        :return: Its URI, encoded: what starts Spark parses it.
        :raises InputError: It has a comma, where Spark splits such names, encoded or not.
        """
        data = file.read_bytes()
        digest = hashlib.sha256(data).hexdigest()[:16]
        uri = f"{work.checkpoint}/application/{file.stem}-{digest}{file.suffix}"
        if "," in uri:
            raise InputError(
                f"The checkpoint {work.checkpoint} has a comma, where Spark splits names of files.",
                kept="the table and the log; nothing was submitted",
                do="set checkpoint to a location without a comma",
            )
        self.storage.put_if_absent(uri, data)
        return quote(uri, safe=":/@")

    # ---- what it does -----------------------------------------------------------------------------

    def _follow(
        self, work: Work, begun: _Begun, entries: Sequence[OffsetEntry], more: More | None
    ) -> Sequence[OffsetEntry]:
        """Follow an application to its end, and give it what follows from its batches.

        :param entries: The batches that are to be run; it may have been given others.
        :param more: Gives those that follow.
        :return: The batches that are left, if it has ended: it was not given them, or too late.
        :raises JobRunningError: It runs longer than the worker waits.
        :raises ScopeProviderError: Why it failed, as it told it, or as the manager did.
        """
        events = ApplicationEvents(self.report)
        seqs: set[int] = set()
        """The batches that it was given."""
        while True:
            job = self._await(begun, follows=more is not None)
            has_ended = job is None or outcome(job) != "waiting"
            lines = plans.events(self.storage.read(plans.events_path(begun.newest)))
            if has_ended:
                self._running = None
                if len(begun.numbers) > 1 and not lines and not self._was_ended(job):
                    return entries  # it gave up waiting before this plan came
            given = _batches(self.storage.read(begun.newest))
            events.batch_count += len(given)
            for event in lines:
                events.take(event)
            has_failed = has_ended and (job is None or outcome(job) != "succeeded")
            is_unfinished = has_failed and events.done < events.batch_count
            if not (is_unfinished and self.wait.timed_out):  # else it tells how it was torn down
                events.check(f"The application's name is {begun.name}")
            if is_unfinished:
                raise self._failure(begun.name, job)
            seqs.update(given)
            entries = [entry for entry in entries if entry.seq not in seqs] or (more() if more else ())
            if has_ended:
                return entries
            if not entries:
                self._give_none(work.checkpoint, begun)
                return ()
            begun = self._give(work, begun, entries)

    def _give(self, work: Work, begun: _Begun, entries: Sequence[OffsetEntry]) -> _Begun:
        """Give an application that waits its next plan, unless another run has; give it with this plan."""
        self.storage.put_if_absent(begun.next, plans.encode(self.plan(work, entries, fence=False)))
        # Whoever finds the next plan does not ask for this one; but the first one keeps the name.
        self._delete(plans.events_path(begun.newest))
        if len(begun.numbers) > 1:
            self._delete(begun.newest)
        return begun._replace(numbers=(*begun.numbers, begun.numbers[-1] + 1))

    def _give_none(self, checkpoint: str, begun: _Begun) -> None:
        """Tell an application that waits for its next plan that none comes."""
        end = plans.Plan(pipeline="", table="", checkpoint=checkpoint, batches=())
        self.storage.put_if_absent(begun.next, plans.encode(end))

    def _await(self, begun: _Begun, *, follows: bool) -> Job | None:
        """Wait for the end of an application, or until it waits for its next plan.

        :param follows: Whether to end the wait then, too; not once the task's time is over.
        :raises JobRunningError: It runs longer than the worker waits.
        """
        place = plans.events_path(begun.newest)

        def waits() -> bool:
            return not self.wait.is_over_time() and plans.waits(self.storage.read(place))

        self.newest_job = self._running = begun.name
        owner = f"on {self.settings.spark_conn_id}"
        try:
            return self.wait.wait(begun.name, owner, waits if follows else None)
        except JobRunningError as err:
            err.events = place if follows else None
            raise

    def _was_ended(self, job: Job | None) -> bool:
        """Whether an application was ended by somebody who wants no other in its place."""
        is_cancelled = job is not None and outcome(job) == "cancelled"
        return is_cancelled or self._is_cancelled or self.wait.is_over_time()

    def _failure(self, name: str, job: Job | None) -> ScopeProviderError:
        """Return the error of an application that told none: it was ended, or never came to its script.

        :param job: What the manager says of it; None if it has forgotten it.
        """
        subject = f"application {name} on {self.settings.spark_conn_id}"
        if self.wait.timed_out:
            return SparkJobFailedError(
                f"The task's execution_timeout has run out; the {subject} was ended.",
                kept=KEPT,
                do="the next try submits the open batches; give the task more time, or fewer batches",
            )
        if job is None:
            return SparkJobFailedError(
                f"The {subject} has not run all its batches, and is not known there any more.",
                kept=KEPT,
                do="the next try submits the open batches",
            )
        cause, is_lasting = submit_cause(self.manager.log(name))
        manager_says = " ".join(word for error in job.errors for word in error.message.split())
        causes = "; ".join(text for text in (cause, manager_says[:CAUSE_LENGTH]) if text)
        end = "was cancelled" if outcome(job) == "cancelled" else "failed"
        problem = f"The {subject} {end}: {causes or 'it gave no cause'}"
        if not is_lasting:
            return SparkJobFailedError(problem, kept=KEPT, do=passing_advice(cause))
        return InputError(
            problem,
            kept=KEPT,
            do="correct `conf`, `packages` or `jars` of the engine, or the cluster's settings; the next run "
            "loads the open batches",
        )


def _begun(storage: Storage, checkpoint: str) -> list[_Begun]:
    """Return the applications that were written down, oldest first."""
    names = filter(None, map(_NAME.fullmatch, storage.names(_folder(checkpoint))))
    plans_of: dict[_Begun, list[int]] = {}
    for name in names:
        begun = _Begun(int(name["seq"]), int(name["number"]), f"{_folder(checkpoint)}/{name['pipeline']}")
        plans_of.setdefault(begun, []).append(int(name["plan"] or 0))
    return sorted(begun._replace(numbers=tuple(sorted(numbers))) for begun, numbers in plans_of.items())


def check_no_application(log: CheckpointLog) -> None:
    """Refuse to submit SCOPE jobs for batches that an application may still commit: neither sees the other.

    It is asked again when an attempt is written down, as an application asks for attempts when its plan is:
    so of two that begin at the same moment, at least one sees the other.

    :raises InputError: As said.
    """
    open_batches = {entry.seq for entry in log.open_entries()}
    folder = _folder(log.location)
    for name in log.storage.names(folder) if open_batches else ():
        plan = None if name.endswith(".events") else log.storage.read(f"{folder}/{name}")
        batches = open_batches.intersection(_batches(plan))
        if batches:
            raise InputError(
                f"Batch {min(batches)} of {log.location} is open, and the application "
                f"{name.partition('.')[0]} of Spark was to run it: SCOPE jobs cannot check what became of "
                "that.",
                kept="the table, the log and all files; no job was submitted",
                do="run the task once with the engine of before, until it succeeds; or, if no application of "
                f"Spark runs for this table any more, on any machine, delete {folder}/{name}",
            )


def check_for_cluster(ingest: Ingest, settings: SparkEngine, places: Sequence[str], manager: Manager) -> None:
    """Refuse what a driver on a cluster cannot do, or would show to others.

    :param places: URIs of all that it reads and writes, beside the quarantine.
    :raises InputError: As said.
    """
    if ingest.source.database:
        raise InputError(
            f"The password of the database would have to be left where {settings.spark_conn_id} reads it.",
            kept="everything; nothing was read or written",
            do="read databases with a driver on the worker: deploy mode client, or no connection of Spark",
        )
    quarantine = [canonical_uri(ingest.table.quarantine)] if ingest.table.quarantine else []
    _check_conf(settings, keeps_secrets=manager.keeps_secrets)
    shared = tuple(canonical_uri(folder) for folder in settings.shared_folders)
    for uri in [*places, *quarantine]:
        _check_reach(uri, shared, settings)


def _check_conf(settings: SparkEngine, *, keeps_secrets: bool) -> None:
    secret = [name for name, value in (settings.conf or {}).items() if secret_values({name: value})]
    if secret and not keeps_secrets:
        raise InputError(
            f"conf of the engine has {', '.join(sorted(secret))}, and whoever may look at the applications "
            f"of {settings.spark_conn_id} would read it.",
            kept="everything; nothing was read or written",
            do="leave it out, and give the cluster the access itself: a managed identity, or a Hadoop "
            "credential provider (spark.hadoop.hadoop.security.credential.provider.path)",
        )


def _check_reach(uri: str, shared_folders: tuple[str, ...], settings: SparkEngine) -> None:
    if not uri.startswith(SCHEME) or is_below(uri, shared_folders):
        return
    raise InputError(
        f"{uri} is on a disk of the worker, and the machines of {settings.spark_conn_id} do not see it.",
        kept="everything; nothing was read or written",
        do="use a store that they reach; or, if each of them mounts this folder at the same path, name it: "
        f"SparkEngine(shared_folders=[{uri.removeprefix(SCHEME)!r}])",
    )


def _folder(checkpoint: str) -> str:
    return f"{checkpoint}/plans"


def _batches(plan: bytes | None) -> Sequence[int]:
    """Return the batches of a plan of whatever version of this package; none of one that was deleted."""
    batches: list[int] = json.loads(plan)["batches"] if plan else []
    return batches
