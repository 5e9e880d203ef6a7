"""The commands about SCOPE jobs, and what other commands print about jobs."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from airflow_provider_scope.cli.output import ADD_YES, command, counted, say
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.scope import ScopeHook
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import repair
from airflow_provider_scope.scope.engine import JobSettings, ScopeRunner, job_id
from airflow_provider_scope.scope.submission import is_ours
from airflow_provider_scope.specs import Checkpoint
from airflow_provider_scope.stores.protocol import canonical_uri

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import TypeGuard

    from airflow_provider_scope.protocol.engine import Engine
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import Attempt, OffsetEntry
    from airflow_provider_scope.scope.jobs import Job
    from airflow_provider_scope.scope.script import BatchIdentity


def runner(scope_conn_id: str, log: CheckpointLog, table: str, storage_conn_id: str | None) -> ScopeRunner:
    """Give an engine that reads and closes batches; it runs none."""
    hook = ScopeHook(scope_conn_id)
    defaults = hook.defaults
    settings = JobSettings(
        name="airflow_scope",
        au=defaults.au,
        priority=defaults.priority,
        timeout_seconds=defaults.job_timeout_seconds,
        poll_seconds=defaults.poll_interval,
        inline_wait_seconds=None,
        run_id=assembly.new_id(),
    )
    return ScopeRunner(
        jobs=hook,
        log=log,
        settings=settings,
        script=_no_script,
        clock=time.time,
        sleep=time.sleep,
        random=random.random,
        report=say,
        table_storage=store_of(table, storage_conn_id).storage,
    )


def _no_script(identity: BatchIdentity, entry: OffsetEntry) -> str:
    msg = f"a command runs no batch ({identity.seq} of {len(entry.files)} files)"
    raise AssertionError(msg)


def is_scope(engine: Engine) -> TypeGuard[ScopeRunner]:
    return isinstance(engine, ScopeRunner)


def describer(engine: Engine, log: CheckpointLog, pipeline: str) -> Callable[[OffsetEntry], list[str]]:
    """Give a function that describes the jobs of a batch, one per line."""

    def job_lines(entry: OffsetEntry) -> list[str]:
        return [_attempt_text(engine, log, pipeline, attempt) for attempt in log.attempts(entry.seq)]

    return job_lines if is_scope(engine) else lambda _: []


def _attempt_text(engine: Engine, log: CheckpointLog, pipeline: str, attempt: Attempt) -> str:
    if attempt.void:
        return f"attempt {attempt.number}: no job; the batch is closed"
    guid = job_id(pipeline, attempt.seq, attempt.number)
    job = engine.jobs.get_job(guid) if is_scope(engine) else None
    settlement = log.settlement(attempt.seq, attempt.number)
    decision = "" if settlement is None else f"; settled: {_decision_text(committed=settlement.landed)}"
    return f"attempt {attempt.number}: job {guid}, {_state_text(job)}{decision}"


def _state_text(job: Job | None) -> str:
    if job is None:
        return "unknown to the service"
    return f"{job.state}, {job.result}" if job.state.casefold() == "ended" else job.state


def _decision_text(*, committed: bool) -> str:
    return "its rows are in the table" if committed else "its rows are not in the table"


@command
def settle(args: Namespace) -> None:
    """Record the decision of a user about a job."""
    if args.committed == args.not_committed:
        raise InputError(
            "Exactly one of --committed and --not-committed is required.",
            kept="everything; nothing was read or written",
            do="look at the table first: --committed if the rows of the batch are in it",
        )
    table = canonical_uri(args.delta_location)
    log = assembly.open_log(
        args.delta_location, Checkpoint(location=args.checkpoint), storage_conn_id=args.storage_conn_id
    )
    pipeline = repair.existing_pipeline(log)
    engine = runner(args.scope_conn_id, log, table, args.storage_conn_id)
    attempt = repair.in_doubt(log, engine, table, args.seq)
    say(f"batch {args.seq}, {_attempt_text(engine, log, pipeline.pipeline, attempt)}")
    next_run = "records the batch" if args.committed else "submits the batch again"
    say(f"{_decision_text(committed=args.committed)}: the next run {next_run}")
    if not args.yes:
        say("A wrong decision loses the rows of the batch, or duplicates them; it cannot be undone.")
        say(ADD_YES)
        return
    settlement = repair.settle(
        log, engine, table, args.seq, committed=args.committed, storage=engine.table_storage
    )
    if settlement.landed != args.committed:
        raise InputError(
            f"Somebody else settled batch {args.seq} just now: "
            f"{_decision_text(committed=settlement.landed)}.",
            kept="that decision",
            do="look at the table again before the next run",
        )
    say(f"settled, as {log.location}/attempts/{settlement.seq:020}.{settlement.number}.settled")


@command
def cancel_jobs(args: Namespace) -> None:
    """Cancel jobs of this package that have not ended."""
    hook = ScopeHook(args.scope_conn_id)
    jobs = _own_jobs(hook, args.tag)
    if not jobs:
        say(f"no job of this package whose name begins with {args.tag}_ is queued or running")
        return
    for job in jobs:
        say(f"{job.job_id}  {job.state:<11}  {job.name}  {job.submitter or ''}".rstrip())
    if not args.yes:
        say(f"{counted(len(jobs), 'job')} would be cancelled")
        say(ADD_YES)
        return
    for job in jobs:
        hook.cancel_job(job.job_id)
    say(
        f"cancellation of {counted(len(jobs), 'job')} requested; runs that wait for them fail and submit "
        "them again"
    )


def _own_jobs(hook: ScopeHook, tag: str) -> list[Job]:
    if not tag.strip("_ "):
        raise InputError(
            f"--tag={tag!r} is not valid: expected text that is not empty.",
            kept="everything; no job was cancelled",
            do="give the job_tag of the task, or its task_id if it has none",
        )
    quoted = tag.replace("'", "''")
    candidates = hook.list_jobs(f"startswith(name,'{quoted}') and state ne 'Ended'", orderby="submitTime asc")
    with_tag = [job for job in candidates if job.name == tag or job.name.startswith(f"{tag}_")]
    # A service that leaves the pipeline out of lists still gives it for a single job.
    jobs = [job if job.pipeline_id else hook.get_job(job.job_id) for job in with_tag]
    return [job for job in jobs if job and is_ours(job)]
