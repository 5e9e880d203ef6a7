"""Whether a world of the SCOPE engine is as it must be once nothing disturbs it any more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError, ScopeProviderError, TableDivergedError
from airflow_provider_scope.execution import repair
from tests.crash.judging import Verdict, _check_audit, _compare_rows
from tests.crash.scope_world import Commit
from tests.support.faulty_storage import Counting, open_gate

if TYPE_CHECKING:
    from tests.crash.scope_world import ScopeWorld

TRIES = 6
"""Undisturbed runs after which nothing may be open: each can meet one job that fails, or one closed batch."""


def judge(world: ScopeWorld, *, diverged: bool = False) -> Verdict:
    """Run, undisturbed, until nothing is open, and look at everything."""
    verdict = Verdict()
    excused: set[str] = set()
    if diverged:
        # Somebody accepts the table as it is when no job changes it any more.
        _let_late_ones_arrive(world)
        with world.patched():
            excused = _accept(world, verdict)
    for left in reversed(range(TRIES)):
        try:
            world.run()
            break
        except ScopeProviderError as err:
            if not left or not err.is_retryable:
                verdict.problems.append(f"the undisturbed run ended with {err!r}")
                break
        except Exception as err:  # noqa: BLE001 - whatever it is, it is a finding
            verdict.problems.append(f"the undisturbed run ended with {err!r}")
            break
    if left_running := [job.name for job in world.service.running() if not job.is_void]:
        verdict.problems.append(f"left running: {left_running}")
    _let_late_ones_arrive(world)
    _compare_rows(world, excused, verdict)
    if not verdict.problems:
        _check_records(world, verdict, diverged=diverged)
        _check_audit(world, verdict)
        again = Counting()
        world.run(again)
        if again.writes:
            verdict.problems.append(f"a run with nothing to do wrote {again.writes}")
    return verdict


def _accept(world: ScopeWorld, verdict: Verdict) -> set[str]:
    """See that the table is refused, accept it, and give the files whose rows are gone for good.

    If the table's log does not tell enough, do what the error says: delete the rows in question.
    """
    try:
        world.run()
    except TableDivergedError:
        pass
    else:
        verdict.problems.append("a table that diverged was not refused")
    log = world.log()
    undone = False
    try:
        repair.look_at_table(log, world.engine(open_gate), world.table)
    except BatchOutcomeUnknownError:
        undone = True
        _delete_rows_in_question(world)
    seen = repair.look_at_table(log, world.engine(open_gate), world.table, reload_undecidable=undone)
    world.accept(reload_undecidable=undone)
    return {file.path for record in seen.rows_gone for file in log.offset(record.seq).files}


def _delete_rows_in_question(world: ScopeWorld) -> None:
    """Delete what a RESTORE brought back, or what open batches added to a table that was created again."""
    table, log = world.delta, world.log()
    restored = [version.restored for version in table.versions if version.restored is not None]
    if restored:
        left = table.rows - table.versions[max(restored)].rows
    else:
        done = log.committed()
        files = {file.path for seq in log.logged() if seq not in done for file in log.offset(seq).files}
        left = Counter({row: count for row, count in table.rows.items() if row[0] not in files})
    table.versions.append(Commit(left, {}, mark=table.mark))


def _let_late_ones_arrive(world: ScopeWorld) -> None:
    """The rows are compared after the last late submission arrived and the last job ended."""
    while world.service.late:
        world.service.deliver()
    world.service.finish()


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
        if not diverged and not record.abandoned and versions[record.table_version].seq != seq
    ]
    verdict.problems += [
        f"attempts of batch {entry.seq}: one is behind a void one"
        for entry in entries
        if any(attempt.void for attempt in log.attempts(entry.seq)[:-1])
    ]
