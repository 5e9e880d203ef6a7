"""Whether a world of the SCOPE engine is as it must be once nothing disturbs it any more."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    ScopeJobFailedError,
    ScopeProviderError,
    TableDivergedError,
)
from airflow_provider_scope.protocol import acceptance
from tests.crash.judging import Verdict, _check_audit, _compare_rows
from tests.crash.scope_world import Commit
from tests.support.faulty_storage import Counting, open_gate

if TYPE_CHECKING:
    from tests.crash.scope_world import ScopeWorld

TRIES = 8
"""Undisturbed runs after which nothing may be open: each can meet one job that fails, or one closed batch."""


def judge(
    world: ScopeWorld, excused: set[str] | None = None, *, diverged: bool = False, accepted: bool = False
) -> Verdict:
    """Run, undisturbed, until nothing is open, and look at everything.

    :param excused: Files whose rows somebody gave up when he accepted the table.
    :param accepted: Somebody accepted the table; a run of before may have recorded a batch since.
    """
    verdict = Verdict()
    excused = set(excused or ())
    if diverged and not accepted:
        _accept_now(world, excused, verdict)
    decided, failure = _run_until_nothing_is_open(world)
    if accepted and isinstance(failure, TableDivergedError):
        _accept_now(world, excused, verdict)
        decided, failure = _run_until_nothing_is_open(world)
    if failure:
        verdict.problems.append(f"the undisturbed run ended with {failure!r}")
    if left_running := [job.name for job in world.service.running() if not job.is_void]:
        verdict.problems.append(f"left running: {left_running}")
    world.service.end_all()  # what it does late may double rows, too
    _compare_rows(world, excused, verdict)
    if not verdict.problems:
        _check_records(world, verdict, diverged=diverged or decided)
        _check_audit(world, verdict)
        again = Counting()
        world.run(again)
        if again.writes:
            verdict.problems.append(f"a run with nothing to do wrote {again.writes}")
    return verdict


def _run_until_nothing_is_open(world: ScopeWorld) -> tuple[bool, Exception | None]:
    """Run again and again, and settle what is in doubt.

    :return: Whether somebody had to settle a batch; what no retry mends.
    """
    decided = False
    for left in reversed(range(TRIES)):
        try:
            world.run()
            break
        except BatchOutcomeUnknownError as err:
            if not world.settle():
                return decided, err
            decided = True
        except ScopeProviderError as err:
            if not left or not err.is_retryable:
                return decided, err
        except Exception as err:  # noqa: BLE001 - whatever it is, it is a finding
            return decided, err
    return decided, None


def _accept_now(world: ScopeWorld, excused: set[str], verdict: Verdict) -> None:
    """Let somebody accept the table as it is when no job changes it any more."""
    world.service.end_all()
    try:
        excused |= _accept(world, verdict)
    except ScopeProviderError as err:
        verdict.problems.append(f"the table could not be accepted: {err!r}")


def _accept(world: ScopeWorld, verdict: Verdict) -> set[str]:
    """See that the table is refused, accept it, and give the files whose rows are gone for good.

    If the table's log does not tell enough, do what the error says.
    """
    for _ in range(TRIES):
        try:
            world.run()
        except TableDivergedError:
            break
        except BatchOutcomeUnknownError:
            if not world.settle():
                break  # the log no longer tells whether the table was restored
        else:
            verdict.problems.append("a table that diverged was not refused")
            break
    log = world.log()
    undone, refresh = False, False
    with world.seen_by_engine():
        try:
            acceptance.consequences_of(log, world.engine(open_gate), world.table)
        except BatchOutcomeUnknownError as err:
            undone = True
            refresh = "full_refresh=True" in err.do
            if not refresh:
                _delete_rows_in_question(world, err.what)
        seen = acceptance.consequences_of(
            log, world.engine(open_gate), world.table, reload_undecidable=undone
        )
    world.accept(reload_undecidable=undone)
    if refresh:
        with suppress(ScopeJobFailedError, BatchOutcomeUnknownError):  # it is logged: the next runs finish it
            world.run(refresh=True)
        return set()
    return {file.path for record in seen.rolled_back for file in log.offset(record.seq).files}


def _delete_rows_in_question(world: ScopeWorld, what: str) -> None:
    """Delete the rows of the files that would be loaded twice, or of the batches that an error names."""
    table, log = world.delta, world.log()
    if "undid the full refresh" in what:
        seen = acceptance.consequences_of(log, world.engine(open_gate), world.table, reload_undecidable=True)
        files = {*seen.doubled}
    else:
        named = re.search(r"open batches ([0-9, ]+) are", what)
        assert named, what
        files = {file.path for seq in named[1].split(", ") for file in log.offset(int(seq)).files}
    left = Counter({row: count for row, count in table.rows.items() if row[0] not in files})
    table.versions.append(Commit(left, {}, mark=table.mark))


def _check_records(world: ScopeWorld, verdict: Verdict, *, diverged: bool) -> None:
    log = world.log()
    entries = [log.offset(seq) for seq in log.logged()]
    commits = {seq: log.commit(seq) for seq in log.committed()}
    floor = max((entry.overwrite_start or 0 for entry in entries), default=0)
    verdict.problems += [
        f"batch {entry.seq} has no commit record"
        for entry in entries
        if entry.seq >= floor and entry.seq not in commits
    ]
    given_up = {seq for seq, record in commits.items() if record.abandoned}
    paths = Counter(
        file.path for e in entries if e.seq >= floor and e.seq not in given_up for file in e.files
    )
    if twice := [path for path, count in paths.items() if count > 1]:
        verdict.problems.append(f"several entries name {twice}")
    versions = world.delta.versions
    verdict.problems += [
        f"commits/{seq} names version {record.table_version}, which is not that batch's"
        for seq, record in commits.items()
        if not diverged and not record.abandoned and versions[record.table_version].seq not in (seq, None)
    ]
    verdict.problems += [
        f"attempts of batch {entry.seq}: one is behind a void one"
        for entry in entries
        if any(attempt.void for attempt in log.attempts(entry.seq)[:-1])
    ]
