"""What became of the jobs of a batch: the service's word, the table's log, and what somebody decided."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.delta.commit import explaining_damage, path_of
from airflow_provider_scope.delta.log import newest_version, read_commit
from airflow_provider_scope.exceptions import BatchOutcomeUnknownError
from airflow_provider_scope.protocol.commands import Address
from airflow_provider_scope.protocol.records import Settlement
from airflow_provider_scope.protocol.recovery import CommittedBatch
from airflow_provider_scope.scope import jobs as decisions
from airflow_provider_scope.scope.jobs import MARKER_PROPERTY, Change, identity_of_marker
from airflow_provider_scope.specs.engine import VOID_NAME
from airflow_provider_scope.waiting import outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.delta.commit import DeltaCommit
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import Attempt
    from airflow_provider_scope.scope.jobs import Evidence, Fate
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.waiting import Job, Jobs


def job_id(pipeline: str, attempt: Attempt) -> str:
    """Return the id of an attempt's job: the same for whoever asks."""
    return str(uuid.uuid5(uuid.UUID(pipeline), f"{attempt.seq}.{attempt.number}"))


def newest_job(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt whose job may have committed: it was made only when those before it had not.

    They are not looked at again, because rows that another writer added since would be taken for theirs.
    """
    return next((attempt for attempt in reversed(attempts) if not attempt.void), None)


def newest_marked(pipeline: str, log: Sequence[Change]) -> int:
    """Return the newest batch of a pipeline that has marked a table; -1 if none has."""
    marks = (identity_of_marker(change.marker or "") for change in log)
    return max((mark.seq for mark in marks if mark and mark.pipeline == pipeline), default=-1)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of an attempt."""

    fate: Fate
    evidence: Evidence = decisions.NOTHING
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class JobFates:
    """Looks at the jobs of one pipeline on one table.

    :param location: Canonical URI of the table.
    :param storage: Where the table is.
    :param account: Whose jobs these are.
    """

    jobs: Jobs
    log: CheckpointLog
    location: str
    pipeline: str
    storage: Storage
    account: str = ""

    def investigate(self, attempt: Attempt) -> Finding:
        """Decide what became of an attempt.

        :raises BatchOutcomeUnknownError: The table's log no longer goes back to the attempt. Even a job
            that succeeded is in doubt then: a RESTORE that cannot be seen may have taken its rows. Or the job
            is of another account.
        """
        settled = self.log.find(Settlement, seq=attempt.seq, number=attempt.number)
        if settled:
            # Whoever decided had seen the job's end, so nothing is asked again.
            return Finding("committed" if settled.committed else "not committed")
        # The job first: what it added before it ended is in the log that is read afterwards.
        guid = job_id(self.pipeline, attempt)
        job = self.jobs.get_job(guid)
        ended = outcome(job) if job else None
        evidence = decisions.NOTHING
        if ended == "succeeded" and job and job.name.startswith(VOID_NAME):
            ended = "cancelled"  # a no-op took the place of the job
        if ended != "waiting":
            newest = newest_version(self.location, self.storage)
            with Address(batch=attempt.seq).completes_errors():
                log = changes(self.location, attempt.table_version, newest, self.storage)
            evidence = decisions.evidence(self.pipeline, attempt, log)
            if ended == "succeeded" and not evidence.closed:
                # The checkpoint may be an older copy, and the job one of before the attempt was recorded.
                first = replace(attempt, table_version=-1)
                log = self._whole_log(newest)
                evidence = decisions.evidence(self.pipeline, first, log)
                evidence = replace(evidence, has_table=newest >= 0)
        if job is None and not evidence.closed and attempt.account not in ("", self.account):
            raise self._elsewhere(attempt)
        if job is None and evidence.marked and self.jobs.get_job(guid):
            # Another runner submitted it between our two looks: ask it how it is.
            return self.investigate(attempt)
        return Finding(decisions.fate(ended, evidence), evidence, job)

    def _elsewhere(self, attempt: Attempt) -> BatchOutcomeUnknownError:
        return BatchOutcomeUnknownError(
            f"The job {job_id(self.pipeline, attempt)} of batch {attempt.seq} was for {attempt.account}, and "
            f"the connection is one of {self.account}, which does not know it: it may still run there.",
            kept="the table, the log and all files; no further job was submitted",
            do=f"name a connection of {attempt.account} until the batch is recorded. If that account is gone "
            f"and the batch's rows are in the table, run `airflow scope settle {attempt.seq} --committed`, "
            f"otherwise `airflow scope settle {attempt.seq} --not-committed`",
        )

    def _whole_log(self, newest: int) -> list[Change]:
        """Return what all versions changed; nothing if the oldest were cleaned up, and so cannot tell."""
        with suppress(BatchOutcomeUnknownError):
            return changes(self.location, -1, newest, self.storage)
        return []

    def committed(self, seq: int, version: int) -> CommittedBatch | Fate:
        """Return where a batch is in the table, or else what became of its newest job.

        :param version: The table's newest, for a batch of which the log does not show one.
        :raises BatchOutcomeUnknownError: Nothing tells.
        """
        attempts = self.log.attempts(seq)
        newest = newest_job(attempts)
        given_up = bool(attempts) and attempts[-1].void
        if newest is None:
            return CommittedBatch(-1, 0, 0, abandoned=True) if given_up else "unknown to the service"
        settled = self.log.find(Settlement, seq=seq, number=newest.number)
        if settled and settled.committed:
            return CommittedBatch(settled.table_version, None, None)
        finding = self.investigate(newest)
        if finding.fate == "undecidable" and finding.evidence.added:
            raise self.undecidable(newest, finding)
        if finding.fate == "committed":
            versions = tuple(change.version for change in finding.evidence.added)
            only_change = finding.evidence.added[0] if len(versions) == 1 else None
            unseen = 0 if finding.evidence.closed and not versions else None
            return CommittedBatch(
                version=versions[-1] if versions else version,
                rows=only_change.rows if only_change else unseen,
                written_bytes=only_change.size_bytes if only_change else unseen,
                candidates=versions,
            )
        # Whoever closed the batch may have died before the job ended: it can land yet.
        if given_up and finding.fate == "not committed":
            return CommittedBatch(-1, 0, 0, abandoned=True)
        return finding.fate

    def undecidable(self, attempt: Attempt, finding: Finding) -> BatchOutcomeUnknownError:
        """Say what nobody but a person can decide, and what to look at."""
        guid = job_id(self.pipeline, attempt)
        added = finding.evidence.added
        files = self.log.offset(attempt.seq).files
        if not added:
            return BatchOutcomeUnknownError(
                f"The job {guid} of batch {attempt.seq} succeeded, but its mark is not in the log of "
                f"{self.location}: the table is an older copy of the one that the job changed, or the job "
                "changes another table, or the mark was cleaned up.",
                kept="the table, the log and all files; no further job was submitted",
                do="if the jobs write elsewhere, correct delta_location: it must mean the same table to "
                "Airflow's workers and to the jobs. If rows of the batch's files, such as "
                f"{files[0].path}, are in the table, run `airflow scope settle {attempt.seq} --committed`. "
                f"Otherwise run `airflow scope settle {attempt.seq} --not-committed`: they are loaded again",
            )
        versions = ", ".join(f"{change.version} ({change.made_by or 'unnamed'})" for change in added)
        return BatchOutcomeUnknownError(
            f"The job {guid} of batch {attempt.seq} did not succeed, and it did not close its mark on "
            f"{self.location}. After the mark, rows were added in version {versions}, and nothing shows "
            "whether they are the job's.",
            kept="the table, the log and all files; no further job was submitted",
            do=f"check who made {'this version' if len(added) == 1 else 'these versions'}, or "
            f"whether rows of the batch's files, such as {files[0].path}, are in the table. If they are, run "
            f"`airflow scope settle {attempt.seq} --committed`, otherwise "
            f"`airflow scope settle {attempt.seq} --not-committed`",
        )


# ---- the table's log, as far as it tells about jobs ----


def changes(location: str, since: int, upto: int, storage: Storage) -> list[Change]:
    """Read what the versions after ``since`` changed in a table, oldest first.

    :param location: Canonical URI of the table.
    :param upto: The newest version to read.
    :param storage: Where the table is.
    :raises BatchOutcomeUnknownError: A commit has been cleaned out of the log.
    :raises TableUnreadableError: A commit could not be understood.
    """
    kept = "the table, the checkpoint and all files; no job was submitted"
    changes_by_version: list[Change] = []
    marker: str | None = None
    for version in range(since + 1, upto + 1):
        with explaining_damage(path_of(location, version), kept):
            commit = read_commit(location, version, storage)
            change = None if commit is None else _change(commit)
        if commit is None or change is None:
            raise BatchOutcomeUnknownError(
                f"The log of the table {location} no longer holds version {version} "
                "(delta.logRetentionDuration): it cannot be seen whether a job's rows are in the table.",
                kept=kept,
                do="look at the table. If the rows are in it, run `airflow scope settle --committed`, "
                "otherwise `airflow scope settle --not-committed`",
            )
        # Metadata is written as a whole: only a marker that differs from the one before is new. A RESTORE
        # brings an old marker back, while the job that made the newest one may still add its rows.
        is_new = change.marker is not None and change.marker != marker and not commit.is_restore
        marker = change.marker or marker
        changes_by_version.append(change if is_new else replace(change, marker=None))
    return changes_by_version


def _change(commit: DeltaCommit) -> Change:
    """Read what a commit changed: no job added the rows of a RESTORE."""
    adds = [file for file in commit.of("add") if file.get("dataChange")]
    counts = [json.loads(add.get("stats") or "{}").get("numRecords") for add in adds]
    return Change(
        commit.version,
        (commit.metadata or {}).get("configuration", {}).get(MARKER_PROPERTY),
        bool(adds) and not commit.is_restore,
        None if None in counts else sum(counts),
        sum(int(add["size"]) for add in adds),
        _made_by(commit.info),
    )


def _made_by(info: dict[str, Any]) -> str:
    """Name a commit's operation and writer; the text of both is up to the writer."""
    writer = next((info[key] for key in ("userName", "engineInfo", "clientVersion") if info.get(key)), "")
    named = f"{info.get('operation') or 'unnamed operation'} by {writer or 'an unnamed writer'}"
    return "".join(sign for sign in named if sign.isprintable())[:120]
