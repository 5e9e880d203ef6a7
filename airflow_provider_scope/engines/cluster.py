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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import quote

from airflow_provider_scope.engines import application
from airflow_provider_scope.engines.manager import Application
from airflow_provider_scope.engines.spark import ApplicationEvents, PlanEngine
from airflow_provider_scope.engines.submit import secret_values
from airflow_provider_scope.exceptions import InputError, ScopeProviderError, SparkJobFailedError
from airflow_provider_scope.failures import CAUSE_LENGTH, passing_advice, submit_cause
from airflow_provider_scope.scope.jobs import outcome
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.settings import EXACT_AT_START
from airflow_provider_scope.stores.kinds import kind_of
from airflow_provider_scope.stores.local import SCHEME
from airflow_provider_scope.stores.protocol import canonical_uri
from airflow_provider_scope.values import counted, is_below

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_scope.engines.manager import Manager
    from airflow_provider_scope.protocol.engine import More, Work
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.scope.jobs import Job
    from airflow_provider_scope.scope.submission import JobWait
    from airflow_provider_scope.specs import SparkEngine
    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.stores.protocol import Storage

logger = logging.getLogger(__name__)

_KEPT = "the batches that are in the table; the others stay logged"
_NAME = re.compile(r".+-(?P<seq>\d+)-(?P<number>\d+)")


class _Begun(NamedTuple):
    """An application whose name was written down, and that may run."""

    seq: int
    """The first batch that it was given."""
    number: int
    """How many applications were given this batch first before."""
    name: str


@dataclass(kw_only=True)
class ClusterEngine(PlanEngine):
    """Runs the plans in applications that a cluster's manager runs.

    An application is named ``<pipeline>-<its first batch>-<number>``. Its plan lies below that name in the
    checkpoint's ``plans/`` before it is submitted. So each try finds those of the tries before, asks the
    manager what became of them, and waits for one that runs. Whatever the manager says or forgets, the
    transactions of the table decide what is loaded, and an application that runs twice changes nothing.

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

    def _submit(
        self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool, more: More | None = None
    ) -> None:
        while entries:
            seqs = self._finish_begun(work, entries, fence=fence)
            rest = [entry for entry in entries if entry.seq not in seqs]
            if rest:
                name = self._begin(work, rest, fence=fence)
                if self._is_cancelled:
                    self._end(name)
                self._await(name)
                self._conclude(work, name)
            entries = more() if more else ()

    # ---- applications that were begun before ------------------------------------------------------

    def _finish_begun(self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool) -> Sequence[int]:
        """Wait for the application that runs, or end it if batches are to be closed.

        :return: The batches that an application was given that has ended under the eyes of this try.
        """
        waited_for = None
        for begun in _begun(self.storage, work.checkpoint):
            job = self.manager.get_job(begun.name)
            if job is not None and outcome(job) == "waiting":
                if fence:
                    self._end(begun.name)
                    continue
                self.report(f"the application {begun.name} of an earlier try is still running")
                self._await(begun.name)
                waited_for = begun.name
            elif self.resumed and not fence:
                waited_for = begun.name  # the newest at last
            elif begun.seq < entries[0].seq:
                self._forget(work, begun.name)
        self.resumed = False
        return self._conclude(work, waited_for) if waited_for else ()

    def _forget(self, work: Work, name: str) -> None:
        """Delete what is left of an application whose batches are settled."""
        path = _path(work, name)
        self.storage.delete(plans.events_path(path))
        self.storage.delete(path)

    def _end(self, name: str) -> None:
        self.manager.cancel_job(name)
        self.wait.await_end(name)

    # ---- a new one --------------------------------------------------------------------------------

    def _begin(self, work: Work, entries: Sequence[OffsetEntry], *, fence: bool) -> str:
        """Write a name and a plan down, and submit them; whoever died in between is taken over."""
        self.wait.check_time(f"of {counted(len(entries), 'batch', 'batches')}")
        plan = plans.encode(self.plan(work, entries, fence=fence))
        for number in itertools.count():
            name = f"{work.pipeline}-{entries[0].seq}-{number}"
            path = _path(work, name)
            if self.storage.put_if_absent(path, plan) == plan and self.manager.get_job(name) is None:
                break
        self.storage.delete(plans.events_path(path))  # of one of this name that the manager has forgotten
        with tempfile.TemporaryDirectory(prefix="airflow-provider-scope-") as folder:
            archive = Path(folder, "application.zip")
            application.write_zip(archive)
            self._running = name
            self.manager.submit(self._application(work, name, path, archive))
        self.report(f"submitted the application {name} with {counted(len(entries), 'batch', 'batches')}")
        return name

    def _application(self, work: Work, name: str, path: str, archive: Path) -> Application:
        conf: dict[str, str] = dict(application.REQUIRED_CONF)
        environment: dict[str, str] = {}
        for uri, store in self.stores.items():
            # What a connection says may be secret, and half of an identity is none.
            conf.update(store.spark_conf if self.manager.keeps_secrets else kind_of(uri).spark_conf)
            environment.update(store.environment)
        conf.update(self.settings.conf or {})
        needed = (package for store in self.stores.values() for package in store.packages)
        return Application(
            name=name,
            script=Path(application.SCRIPT),
            archive=archive,
            arguments=(path, plans.REPORT),
            conf={**conf, **{name: setting.value for name, setting in EXACT_AT_START.items()}},
            environment=environment,
            packages=application.packages_of(self.settings, needed),
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

    # ---- its end ----------------------------------------------------------------------------------

    def _await(self, name: str) -> None:
        """Wait for the end of an application.

        :raises JobRunningError: It runs longer than the worker waits.
        """
        self.newest_job = self._running = name
        self.wait.wait(name, f"on {self.settings.spark_conn_id}")

    def _conclude(self, work: Work, name: str) -> Sequence[int]:
        """Report what an application that has ended did; give the batches that it was given.

        :raises ScopeProviderError: Why it failed, as it told it, or as the manager did.
        """
        self._running = None
        path = _path(work, name)
        plan = self.storage.read(path)
        # Of whatever version of this package: its batches are all that is needed.
        seqs: list[int] = json.loads(plan)["batches"] if plan else []
        events = ApplicationEvents(self.report)
        events.batch_count = len(seqs)
        for event in self._events(path):
            events.take(event)
        events.check(f"The application's name is {name}")
        job = self.manager.get_job(name)
        if events.done < len(seqs) and (job is None or outcome(job) != "succeeded"):
            raise self._failure(name, job)
        return seqs

    def _events(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield what an application told; a line that is not whole yet is none."""
        data = self.storage.read(plans.events_path(path)) or b""
        for line in data.decode().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)

    def _failure(self, name: str, job: Job | None) -> ScopeProviderError:
        """Return the error of an application that told none: it was ended, or never came to its script.

        :param job: What the manager says of it; None if it has forgotten it.
        """
        subject = f"The application {name} on {self.settings.spark_conn_id}"
        if self.wait.is_over_time():
            return SparkJobFailedError(
                f"The task's execution_timeout has run out; {subject[0].lower()}{subject[1:]} was ended.",
                kept=_KEPT,
                do="the next try submits the open batches; give the task more time, or fewer batches",
            )
        if job is None:
            return SparkJobFailedError(
                f"{subject} has not run all its batches, and is not known there any more.",
                kept=_KEPT,
                do="the next try submits the open batches",
            )
        cause, is_lasting = submit_cause(self.manager.log(name))
        manager_says = " ".join(word for error in job.errors for word in error.message.split())
        causes = "; ".join(text for text in (cause, manager_says[:CAUSE_LENGTH]) if text)
        end = "was cancelled" if outcome(job) == "cancelled" else "failed"
        problem = f"{subject} {end}: {causes or 'it gave no cause'}"
        if not is_lasting:
            return SparkJobFailedError(problem, kept=_KEPT, do=passing_advice(cause))
        return InputError(
            problem,
            kept=_KEPT,
            do="correct `conf`, `packages` or `jars` of the engine, or the cluster's settings; the next run "
            "loads the open batches",
        )


def _begun(storage: Storage, checkpoint: str) -> list[_Begun]:
    """Return the applications that were written down, oldest first."""
    names = (_NAME.fullmatch(name) for name in storage.names(f"{checkpoint}/plans"))
    return sorted(_Begun(int(name["seq"]), int(name["number"]), name[0]) for name in names if name)


def check_no_application(log: CheckpointLog) -> None:
    """Refuse to submit SCOPE jobs for batches that an application may still commit: neither sees the other.

    :raises InputError: As said.
    """
    open_batches = {entry.seq for entry in log.open_entries()}
    for begun in _begun(log.storage, log.location):
        plan = log.storage.read(f"{log.location}/plans/{begun.name}")
        if plan and open_batches.intersection(json.loads(plan)["batches"]):
            raise InputError(
                f"Batch {min(open_batches)} of {log.location} is open, and the application {begun.name} "
                "was to run it on a cluster: SCOPE jobs cannot check what became of that.",
                kept="everything; nothing was written",
                do="run the task once with the engine of before, until it succeeds",
            )


def check_for_cluster(ingest: Ingest, settings: SparkEngine, places: Sequence[str], manager: Manager) -> None:
    """Refuse what a driver on a cluster cannot do, or would show to others.

    :param places: URIs of all that it reads and writes.
    :raises InputError: As said.
    """
    if ingest.source.database:
        raise InputError(
            f"The password of the database would have to be left where {settings.spark_conn_id} reads it.",
            kept="everything; nothing was read or written",
            do="read databases with a driver on the worker: deploy mode client, or no connection of Spark",
        )
    quarantine = [canonical_uri(uri) for uri in (ingest.table.quarantine, ingest.source.table_folder) if uri]
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


def _path(work: Work, name: str) -> str:
    return f"{work.checkpoint}/plans/{name}"
