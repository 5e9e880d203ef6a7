"""A SCOPE script of the user's own, submitted exactly once."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import conf

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError, JobRunningError, ScopeProviderError, StorageError
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.operators.base import JobWaitingOperator, PollSeconds, check_names, fail
from airflow_provider_scope.scope.jobs import SCRIPT_LIMIT_BYTES, NewJob
from airflow_provider_scope.scope.submission import JobSettings, job_error
from airflow_provider_scope.specs.engine import JobSeconds, JobTag
from airflow_provider_scope.validation import Count
from airflow_provider_scope.waiting import JobWait, outcome

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_scope.waiting import Job

DEFAULT_DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
SUBMISSION_KEY = "scope_job"
"""The key in Airflow's task state store."""
_NAMESPACE = uuid.UUID("7b1a5c1e-2f53-4d0c-9f0e-6a3f6d1f8a52")


@dataclass(frozen=True, slots=True)
class Submission:
    """One attempt at a task's job, written down before the job is submitted."""

    epoch: int
    """The task instance's ``max_tries``: a clear raises it, a retry does not."""
    attempt: int
    job_id: str
    account: str
    """The host of the account that runs the job; another one does not know it. Empty: it is not known."""


def submission_id(*parts: str | int) -> str:
    """Return the id that follows from who submits: the same for whoever asks."""
    return str(uuid.uuid5(_NAMESPACE, json.dumps(parts)))


_ARGUMENTS: dict[str, Any] = {
    "script": str,
    "job_name": str | None,
    "scope_conn_id": str,
    "au": Count | None,
    "priority": Count | None,
    "job_tag": JobTag | None,
    "job_timeout_seconds": JobSeconds | None,
    "poll_interval": PollSeconds | None,
}
"""Those that are checked by their types."""


class ScopeSubmitJobOperator(JobWaitingOperator):
    """Run a SCOPE script, as one job of Azure Data Lake Analytics.

    The job's id follows from the task instance, and is written into Airflow's task state before the job is
    submitted. So a retry goes on with that job, whatever happened to the try before. It waits for a job that
    runs, and takes the result of one that succeeded. It submits another one only if the job is known to have
    failed. A task that is cleared starts over: an earlier job that still runs is cancelled first. If a worker
    runs it when it is cleared, Airflow does not tell that from a retry, and neither does it.

    :param script: The script: text, or a ``.script`` or ``.scope`` file. May be a template.
    :param job_name: The job's name; None is the task's id.
    :param scope_conn_id: A connection of type ``adla_scope``.
    :param au: Analytics units; None is the connection's, else 100.
    :param priority: 1 or more, a lower number leaves the queue first; None is the connection's, else 1.
    :param job_tag: Put before the job's name, with a ``_``; ``airflow scope cancel-jobs`` finds it by that.
    :param job_timeout_seconds: How long the job may take, from its submission; then it is cancelled. None
        is the connection's, else 36,000.
    :param wait_for_completion: False: the task succeeds when the service has taken the job.
    :param deferrable: Free the worker while the job runs.
    :param poll_interval: Seconds between two looks at the job; None is the connection's, else 5. At least
        10 while the task is deferred.
    :return: ``job_id``, ``name``, ``state``, ``result`` and ``attempt`` of the job, as XCom.
    :raises InputError: An argument is not valid; when the Dag is parsed, as far as it is known then.
    :raises ScopeScriptError: The service blames the script; the task fails without a retry.
    :raises ScopeJobFailedError: The job failed for another reason, was cancelled, or took too long.
    """

    template_fields: Sequence[str] = (
        "script",
        "job_name",
        "scope_conn_id",
        "au",
        "priority",
        "job_tag",
        "job_timeout_seconds",
    )
    template_ext: Sequence[str] = (".script", ".scope")
    template_fields_renderers: ClassVar[dict[str, str]] = {"script": "sql"}
    ui_color = "#dcecf5"

    def __init__(
        self,
        *,
        script: str,
        job_name: str | None = None,
        scope_conn_id: str = ScopeHook.default_conn_name,
        au: int | None = None,
        priority: int | None = None,
        job_tag: str | None = None,
        job_timeout_seconds: float | None = None,
        wait_for_completion: bool = True,
        deferrable: bool = DEFAULT_DEFERRABLE,
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_names(type(self), kwargs)
        super().__init__(**kwargs)
        self.script = script
        self.job_name = job_name
        self.scope_conn_id = scope_conn_id
        self.au = au
        self.priority = priority
        self.job_tag = job_tag
        self.job_timeout_seconds = job_timeout_seconds
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self._ti: Any = None
        self._waiting: JobWait[ScopeHook] | None = None
        self._check()

    def _check(self) -> None:
        for name in ("script", "job_name", "job_tag"):
            setattr(self, name, validation.as_text(getattr(self, name)))
        for name, kind in _ARGUMENTS.items():
            setattr(self, name, validation.check(name, getattr(self, name), kind))
        if isinstance(self.script, str) and len(self.script.encode()) > SCRIPT_LIMIT_BYTES:
            raise validation.bad("script", f"{self.script[:40]}…", f"at most {SCRIPT_LIMIT_BYTES:,} bytes")

    # ---- the parts of a task ------------------------------------------------------------------------

    def execute(self, context: Context) -> dict[str, Any]:
        """Begin a try."""
        return self._go_on(context, resumed=False)

    def resume(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Go on after a wait. The event decides nothing: the job is looked at."""
        self.log.info("resumed: %s", event)
        return self._go_on(context, resumed=True)

    def on_kill(self) -> None:
        """Cancel the job if the task is over for good; the next try goes on with it otherwise."""
        if self._waiting and self.is_over(self._ti):
            self._waiting.cancel()

    # ---- how ----------------------------------------------------------------------------------------

    def _go_on(self, context: Context, *, resumed: bool) -> dict[str, Any]:
        self._ti = context["ti"]
        hook = ScopeHook(self.scope_conn_id)
        try:
            self._check()
            return self._run(context, hook, resumed=resumed)
        except JobRunningError as err:
            self.wait_in_triggerer(err, self.scope_conn_id)
        except ScopeProviderError as err:
            fail(err, self.log)
        finally:
            self._waiting = None
            hook.close()

    def _run(self, context: Context, hook: ScopeHook, *, resumed: bool) -> dict[str, Any]:
        from airflow_provider_scope.engines import assembly

        defaults = hook.defaults
        self._waiting = wait = JobWait(
            jobs=hook,
            timeout_seconds=self.job_timeout_seconds or defaults.job_timeout_seconds,
            poll_seconds=self.poll_interval or defaults.poll_interval,
            inline_wait_seconds=assembly.INLINE_WAIT_SECONDS if self.deferrable else None,
            clock=time.time,
            sleep=time.sleep,
            random=random.random,
            report=self.log.info,
            deadline=self.deadline(self._ti),
        )
        submission = self._submission(context, hook, wait, resumed=resumed)
        job_id = submission.job_id
        self.job_url = hook.url_of(job_id)
        job = hook.get_job(job_id)
        if job is None:
            # Written down before it is sent. It also refuses a process that Airflow gave up on: its task
            # instance is not there any more.
            _store(context, submission)
            job = hook.submit_job(job_id, self._new_job(hook))
            self.log.info("submitted the job %s, %s", job_id, job.name)
        else:
            self.log.info("going on with the job %s, which is %s", job_id, job.state)
        if self.wait_for_completion:
            job = wait.wait(job_id, f"of {self._ti.dag_id}.{self._ti.task_id}")
            if job is None or outcome(job) != "succeeded":
                raise job_error(
                    job,
                    f"The job {job_id} did not succeed",
                    timed_out=bool(wait.timed_out),
                    kept="what the script had committed before it ended",
                    correct="correct the script, then clear the task",
                    again="the next try submits it again, as another job",
                )
        return {
            "job_id": job_id,
            "name": job.name,
            "state": job.state,
            "result": job.result,
            "attempt": submission.attempt,
        }

    def _submission(
        self, context: Context, hook: ScopeHook, wait: JobWait[ScopeHook], *, resumed: bool
    ) -> Submission:
        """Return the attempt to go on with."""
        stored = _stored(context)
        if resumed and stored is None and context.get("task_state_store") is not None:
            raise StorageError(
                "The task's state is missing: Airflow started another try of it, or somebody deleted it.",
                kept="the job, which goes on",
                do="nothing if another try runs; a retry looks for the job first",
            )
        epoch = self._ti.max_tries
        if stored and stored.epoch != epoch:
            self.log.info("the task was cleared: it starts over")
            hook.cancel_job(stored.job_id)
            wait.await_end(stored.job_id)
            stored = None
        account = hook.service.authority
        if stored and stored.account not in ("", account):
            raise InputError(
                f"The job {stored.job_id} was for {stored.account}, and the connection {self.scope_conn_id} "
                f"is one of {account}, which does not know it: it may still run there.",
                kept="that job; no other one was submitted",
                do=f"name a connection of {stored.account} again, then clear the task. If the job has ended, "
                "or that account is gone, clear the task: it starts over",
            )
        submission = stored or self._attempt(epoch, 0, account)
        while _failed(hook.get_job(submission.job_id)):
            following = self._attempt(epoch, submission.attempt + 1, account)
            if resumed and hook.get_job(following.job_id) is None:
                break  # it failed in this try: that is for the next one
            submission = following
        return submission

    def _attempt(self, epoch: int, attempt: int, account: str) -> Submission:
        ti = self._ti
        map_index = -1 if ti.map_index is None else ti.map_index
        job_id = submission_id(*self._task(), ti.run_id, map_index, epoch, attempt)
        return Submission(epoch, attempt, job_id, account)

    def _task(self) -> tuple[str, str, str]:
        # Two Airflows may have the same Dag and run, and use the same account.
        return conf.get("api", "base_url", fallback=""), self._ti.dag_id, self._ti.task_id

    def _new_job(self, hook: ScopeHook) -> NewJob:
        name = self.job_name or self._ti.task_id
        settings = JobSettings(
            name=self.job_tag or name,
            au=self.au or hook.defaults.au,
            priority=self.priority or hook.defaults.priority,
            run_id=submission_id(*self._task(), self._ti.run_id),
            task=f"{self._ti.dag_id}.{self._ti.task_id}",
        )
        full_name = f"{self.job_tag}_{name}" if self.job_tag else name
        return settings.new_job(submission_id(*self._task()), full_name, self.script)


def _failed(job: Job | None) -> bool:
    return job is not None and outcome(job) in ("failed", "cancelled")


def _stored(context: Context) -> Submission | None:
    store = context.get("task_state_store")  # Airflow before 3.3 has none: the ids alone tell then
    value: Any = store.get(SUBMISSION_KEY) if store is not None else None
    if not isinstance(value, Mapping):
        return None
    epoch, attempt = int(value["epoch"]), int(value["attempt"])
    return Submission(epoch, attempt, str(value["job_id"]), str(value.get("account", "")))


def _store(context: Context, submission: Submission) -> None:
    store = context.get("task_state_store")
    if store is not None:
        store.set(SUBMISSION_KEY, asdict(submission))
