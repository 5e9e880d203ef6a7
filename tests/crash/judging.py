"""Whether a world is as it must be once nothing disturbs it any more.

Nothing here asks how the world came to be: the files that landed are compared with the table's rows,
and the records with each other.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    ScopeProviderError,
    StateUnknownError,
    TableDivergedError,
)
from airflow_provider_scope.protocol import acceptance, repair, takeover
from airflow_provider_scope.protocol.takeover import Epoch
from airflow_provider_scope.values import CursorSlice, VersionSlice
from tests.crash.table_world import numbers_of
from tests.support.faulty_storage import Counting, open_gate
from tests.support.numbers import NumberSlice

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_provider_scope.protocol.records import CommitRecord
    from tests.crash.world import MemoryWorld


@dataclass
class Verdict:
    """What is wrong."""

    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)


def rows_doubled(world: MemoryWorld) -> int:
    """Count the rows that are in the table more often than once."""
    return sum(count - 1 for count in world.rows().values())


def landed_rows(world: MemoryWorld) -> Counter[Any]:
    """Return the rows of all files that are in the source."""
    return Counter(row for path in world.memory.source for row in world.memory.content[path])


def judge(
    world: MemoryWorld, *, late_files: str = "ingest", diverged: bool = False, lists: bool = True
) -> Verdict:
    """Run once more, undisturbed, and look at everything.

    :param lists: False if a list in ``sources/`` may be missing: one of two runs that write them at the same
        time deletes those that it does not know.
    """
    verdict = Verdict()
    excused: set[Any] = set()
    try:
        if diverged:
            excused = _accept(world, verdict)
        world.run(late_files=late_files)
    except Exception as err:  # noqa: BLE001 - whatever it is, it is a finding
        verdict.problems.append(f"the undisturbed run ended with {err!r}")
    _compare_rows(world, excused, verdict)
    if not verdict.problems:
        _check_records(world, verdict, diverged=diverged)
        _check_audit(world, verdict, lists=lists)
        again = Counting()
        world.run(again, late_files=late_files)
        if again.writes:
            verdict.problems.append(f"a run with nothing to do wrote {again.writes}")
        world.drop("later", at=0)
        world.run(late_files=late_files)
        _compare_rows(world, excused, verdict)
    return verdict


def _accept(world: MemoryWorld, verdict: Verdict) -> set[Any]:
    """See that the table is refused, accept it, and give the files whose rows are gone for good.

    If a refresh was undone in its midst, do what the error says: delete the rows of the files that would be
    loaded on top of them.
    """
    if world.has_state:
        _accept_with_state(world)
        return set()
    try:
        world.run()
    except TableDivergedError:
        pass
    else:
        verdict.problems.append("a table that diverged was not refused")
    log = world.log()
    undone = refresh = False
    try:
        acceptance.consequences_of(log, world.engine(open_gate), world.table)
    except BatchOutcomeUnknownError as err:
        undone = True
        refresh = "created again after" in err.what
        refresh |= "undid the full refresh" in err.what and "vacuum" in err.what
        refresh |= "are in the table twice" in err.what
        if not refresh and "vacuum" not in err.what:
            seen = acceptance.consequences_of(
                log, world.engine(open_gate), world.table, reload_undecidable=True
            )
            slices = [log.offset(seq).slice for seq in log.logged()]
            held = {name for one in slices if one.text() in seen.doubled for name in names_in(one)}
            _delete_rows(world, {*seen.doubled, *held})
    seen = acceptance.consequences_of(log, world.engine(open_gate), world.table, reload_undecidable=undone)
    world.accept(reload_undecidable=undone)
    if refresh:
        world.run(refresh=True)
        return set()
    gone = {name for record in seen.rolled_back for name in names_in(log.offset(record.seq).slice)}
    if seen.vacuumed:  # nothing tells which batches the restored version held: their files count as loaded
        start = log.offset(log.logged()[-1]).refresh_start
        gone |= {path for path, _ in world.audit_files(log).seen_files(Epoch(start))[0].items()}
    return gone


def _accept_with_state(world: MemoryWorld) -> None:
    """Accept the table if it still is refused; if nothing tells its state, do a full refresh."""
    try:
        world.run()
    except TableDivergedError:
        pass
    except StateUnknownError:
        world.run(refresh=True)
        return
    else:
        return
    try:
        world.accept()
    except BatchOutcomeUnknownError:
        world.accept(reload_undecidable=True)
        with suppress(StateUnknownError):
            world.run()
        world.run(refresh=True)


def _delete_rows(world: MemoryWorld, names: Collection[Any]) -> None:
    versions = world.delta.versions
    left = Counter({row: n for row, n in versions[-1].rows.items() if world.name_of(row) not in names})
    versions.append(replace(versions[-1], rows=left, seq=None, pipeline=None, restored=None))


def _compare_rows(world: MemoryWorld, excused: set[Any], verdict: Verdict) -> None:
    found, expected = world.rows(), landed_rows(world)
    lost = Counter({row: n for row, n in (expected - found).items() if world.name_of(row) not in excused})
    doubled = found - expected
    verdict.lost, verdict.doubled = lost.total(), doubled.total()
    if lost or doubled:
        verdict.problems.append(f"lost {sorted(lost)}, doubled {sorted(doubled)}")


def _check_records(world: MemoryWorld, verdict: Verdict, *, diverged: bool) -> None:
    log = world.log()
    entries = [log.offset(seq) for seq in log.logged()]
    commits = {seq: log.commit(seq) for seq in log.committed()}
    floor = max((e.overwrite_start or 0 for e in entries), default=0)
    for entry in entries:
        if entry.seq >= floor and entry.seq not in commits:
            verdict.problems.append(f"batch {entry.seq} has no commit record")
    start = entries[-1].refresh_start or 0 if entries else 0
    given_up = {seq for seq, record in commits.items() if record.abandoned}
    counting = [e.slice for e in entries if e.seq >= start and e.seq not in given_up]
    paths = Counter(name for one in counting for name in names_in(one))
    comes_again = diverged and world.has_state  # what a RESTORE took out
    if not comes_again and (twice := [path for path, count in paths.items() if count > 1]):
        verdict.problems.append(f"several entries name {twice}")
    if not diverged:
        verdict.problems += [
            f"commits/{seq} names version {record.table_version}, which is not that batch's"
            for seq, record in commits.items()
            if _batch_of(world, record) != seq
        ]


def names_in(one: Any) -> list[Any]:
    """Name what a slice holds: files, numbers, or versions."""
    if isinstance(one, (NumberSlice, VersionSlice)):
        return [*range(one.first, one.last + 1)]
    if isinstance(one, CursorSlice):
        return numbers_of(one)
    return [file.path for file in one.files]


def _batch_of(world: MemoryWorld, record: CommitRecord) -> int | None:
    versions = world.delta.versions
    return versions[record.table_version].seq if record.table_version < len(versions) else None


def _check_audit(world: MemoryWorld, verdict: Verdict, *, lists: bool = True) -> None:
    """Compare the audit with the log; then build it anew, and compare that."""
    verdict.problems += _wrong_in_audit(world, lists=lists)
    log = world.log()
    try:
        repair.rebuild(log, world.audit_files(log))
    except ScopeProviderError as err:
        verdict.problems.append(f"the audit cannot be rebuilt: {err!r}")
    verdict.problems += [f"rebuilt: {text}" for text in _wrong_in_audit(world)]


def _wrong_in_audit(world: MemoryWorld, *, lists: bool = True) -> list[str]:
    log, found = world.log(), world.audit()
    newest_entry = log.newest_offset()
    start = newest_entry.refresh_start
    done = [seq for seq in log.committed() if seq >= (start or 0)]
    if not done:
        return []
    wrong = []
    # dbt-scope's numbers go on until a full refresh; each of its batches here had one file.
    earlier_batches = len(world.loaded_by_dbt_scope) if start is None else -start
    batch_ids = {seq: seq + earlier_batches for seq in done}
    watermark = {key: found["watermark.json"][key] for key in ("seq", "refreshStart", "batchId")}
    newest_batch = {"seq": done[-1], "refreshStart": start, "batchId": batch_ids[done[-1]]}
    if watermark != newest_batch:
        wrong.append(f"watermark.json is of {watermark}, not {newest_batch}")
    epoch = Epoch.of(newest_entry, log.takeover(newest_entry))
    rows = {seq: takeover.audit_rows(log.offset(seq), log.commit(seq), batch_ids[seq]) for seq in done}
    seen, behind = world.audit_files(log).seen_files(epoch)
    expected = {row["uri"] for seq in done if seq < behind for row in rows[seq]}
    if epoch.taken:
        expected |= world.loaded_by_dbt_scope
    found_there = {path for path, _ in seen.items()}
    if log.vacuumed_below():  # no record tells which files the purged batches had; the rows do
        expected |= found_there & world.memory.source.keys()
    if found_there != expected:
        wrong.append(f"seen/ names {sorted(path for path, _ in seen.items())}, not {sorted(expected)}")
    newest = batch_ids[done[-1]]
    for seq in done:
        name = str(batch_ids[seq])
        if start is not None:
            # Nothing locks the derived files: two runs of different refreshes that write them at the same
            # time, one of which dies, may leave a list of the older one. `rebuild` mends it.
            continue
        if lists and name not in found and rows[seq] and int(name) > newest - world.retention:
            wrong.append(f"sources/{name} is missing")
        if name in found and [row["uri"] for row in found[name]] != [row["uri"] for row in rows[seq]]:
            wrong.append(f"sources/{name} is {found[name]}")
    return wrong
