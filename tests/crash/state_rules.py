"""The rules of sources with a state, each with a way to leave it out and what happens then."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    InputError,
    ScopeProviderError,
    SourceFileGoneError,
    StateUnknownError,
    TableDivergedError,
)
from airflow_provider_scope.protocol import acceptance, recovery, repair, view
from airflow_provider_scope.protocol.records import decode_offset
from airflow_provider_scope.protocol.recovery import SourceState
from airflow_provider_scope.sources.cursor.source import CursorRows
from tests.crash.judging import judge
from tests.crash.table_world import TABLE, CursorInMemory, CursorWorld, state_after, without_three
from tests.crash.tally import Tally
from tests.support.faulty_storage import before

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from airflow_provider_scope.protocol.records import Acceptance, OffsetEntry
    from airflow_provider_scope.protocol.recovery import Chain, CommittedBatch, TableState
    from airflow_provider_scope.protocol.report import RunReport
    from airflow_provider_scope.protocol.source import OneSlice
    from airflow_provider_scope.protocol.view import LogView
    from tests.support.faulty_storage import Call


@dataclass(frozen=True)
class StateRule:
    """A rule, what happens that needs it, and what is found without it."""

    name: str
    leave_out: Callable[[pytest.MonkeyPatch], None]
    check: Callable[[], Tally]
    finds: str
    """``lost``, ``doubled`` or ``failures``."""


# ---- what happens ----------------------------------------------------------------------------------


def loaded(*batches: int) -> CursorWorld:
    """Return a world in which batches of so many rows were loaded."""
    world = CursorWorld()
    for count in batches:
        land(world, count)
        world.run()
    return world


def land(world: CursorWorld, count: int) -> None:
    for _ in range(count):
        world.drop("row", at=1)


def paused(world: CursorWorld, name: str, **asked: Any) -> Callable[[], object]:
    """Start a run that stops before an operation; give what lets it go on to its end."""

    def gate(call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        if call.name == name:
            getcurrent().parent.switch()  # type: ignore[union-attr]
        return effect()

    def run() -> None:
        with suppress(ScopeProviderError):
            world.run(gate, **asked)

    thread = greenlet(run)
    thread.switch()
    assert not thread.dead, f"the run did not come to '{name}'"
    return thread.switch


def found(world: CursorWorld, *, diverged: bool = False) -> Tally:
    verdict = judge(world, diverged=diverged)
    return Tally(0, verdict.lost, verdict.doubled, verdict.problems)


def a_batch_left_open() -> Tally:
    world = loaded(2)
    land(world, 2)
    paused(world, "open 1")
    return found(world)


def rows_that_come_while_a_batch_runs() -> Tally:
    world = loaded(2)
    land(world, 1)
    go_on = paused(world, "verify 1")
    land(world, 1)
    go_on()
    return found(world)


def a_batch_given_up() -> Tally:
    world = CursorWorld()
    land(world, 5)
    with suppress(SourceFileGoneError):
        world.run(engine=without_three(world))
    world.abandon(1)
    return found(world)


def a_refresh() -> Tally:
    world = loaded(2, 2)
    land(world, 1)
    world.run(refresh=True)
    return found(world)


def a_refresh_that_is_given_up() -> Tally:
    """Look at the rows: until the refresh has run, those of before are there."""
    world = loaded(2, 2)
    paused(world, "open 2", refresh=True)
    with suppress(InputError):
        world.abandon(2)
    return rows_are(world, 4)


def a_restore_beside_a_refresh() -> Tally:
    world = loaded(2, 2)
    paused(world, "open 2", refresh=True)
    world.restore(0)
    world.accept()
    return rows_are(world, 2)


def rows_are(world: CursorWorld, count: int) -> Tally:
    """See that so many rows are there, and that the world ends well."""
    gone = count - world.rows().total()
    tally = found(world, diverged=True)
    tally.lost += gone
    return tally


def a_restore() -> Tally:
    world = loaded(2, 2, 2)
    world.restore(0)
    world.accept()
    return found(world, diverged=True)


def a_restore_of_a_restore() -> Tally:
    world = loaded(2, 2, 2)
    world.restore(1)
    world.restore(0)
    world.restore(3)
    world.accept()
    return found(world, diverged=True)


def a_table_that_was_created_again() -> Tally:
    world = loaded(2, 2)
    world.recreate()
    world.accept()
    return found(world, diverged=True)


def an_application_that_lives_on() -> Tally:
    """It runs the batch that is open while the table is restored and accepted."""
    world = loaded(2, 2)
    land(world, 2)
    go_on = paused(world, "commit 2")
    world.restore(0)
    world.accept()
    go_on()
    return found(world, diverged=True)


def an_application_that_commits_meanwhile() -> Tally:
    """It commits while somebody accepts the table, just before the batch is given up."""
    world = loaded(2, 2)
    land(world, 2)
    go_on = paused(world, "commit 2")
    world.restore(0)
    with suppress(BatchOutcomeUnknownError):
        world.accept(before("open 2", go_on))
    return found(world, diverged=True)


def an_application_that_commits_after_a_restore() -> Tally:
    world = loaded(2, 2)
    land(world, 2)
    go_on = paused(world, "commit 2")
    world.restore(0)
    go_on()
    return found(world, diverged=True)


def a_run_after_no_state() -> Tally:
    world = loaded(2, 2)
    land(world, 2)
    go_on = paused(world, "commit 2")
    world.restore(0)
    go_on()
    world.accept(reload_undecidable=True)
    with suppress(StateUnknownError):
        world.run()
    return found(world, diverged=True)


def a_log_that_was_cleaned() -> Tally:
    """The newest batch has no record, and what its commit says is gone."""
    world = loaded(2, 2)
    land(world, 2)
    paused(world, f"put commits/{2:020}")
    world.delta.oldest = 3
    with suppress(BatchOutcomeUnknownError):
        world.accept()
    try:
        world.run()
    except (TableDivergedError, BatchOutcomeUnknownError):
        world.accept(reload_undecidable=True)
        with suppress(StateUnknownError):
            world.run()
        world.run(refresh=True)
    return found(world)


# ---- without a rule --------------------------------------------------------------------------------


def logged_early(patch: pytest.MonkeyPatch) -> None:
    """Log an entry before the one below it has its record."""
    patch.setattr(CursorRows, "one_at_a_time", False)


def state_from_memory(patch: pytest.MonkeyPatch) -> None:
    """Take what a process makes of the source when the record is due, not what the commit says."""
    original = CursorInMemory.look

    def look(self: CursorInMemory, *args: Any) -> TableState:
        state = original(self, *args)
        newest = len(self.storage.names(f"{TABLE}/_delta_log")) - 1

        def again(seq: int, batch: CommittedBatch) -> CommittedBatch:
            data = self.storage.control[f"file:///table/_checkpoint/offsets/{seq:020}"]
            read = decode_offset("entry", data, seq).slice
            return replace(batch, state=state_after(replace(read, version=newest)))  # type: ignore[type-var]

        return replace(state, committed={seq: again(seq, batch) for seq, batch in state.committed.items()})

    patch.setattr(CursorInMemory, "look", look)


def abandon_keeps_after(patch: pytest.MonkeyPatch) -> None:
    """Return the record of a batch that was given up the state after it."""

    def after(_view: LogView, entry: OffsetEntry, committed: CommittedBatch) -> tuple[str | None, bool]:
        if not committed.abandoned:
            return committed.state, False
        return state_after(entry.slice), False  # type: ignore[arg-type] # as its kind says

    patch.setattr(view, "_state_after", after)


def abandon_refresh(patch: pytest.MonkeyPatch) -> None:
    """Let an open full refresh be given up."""
    patch.setattr(repair, "open_entry", lambda view, _seq, _checkpoint: view.open[0])


def accept_gives_up_a_refresh(patch: pytest.MonkeyPatch) -> None:
    """Let ``accept-table`` give up an open full refresh."""
    patch.setattr(acceptance._Reading, "is_refreshing", False)


def refresh_keeps_state(patch: pytest.MonkeyPatch) -> None:
    """Begin a full refresh at the state of before."""
    original = CursorRows.pending

    def pending(self: CursorRows, view: LogView, report: RunReport, *, refresh: bool) -> OneSlice:
        return original(self, view, report, refresh=False)

    patch.setattr(CursorRows, "pending", pending)


def restore_newest_record(patch: pytest.MonkeyPatch) -> None:
    """After a RESTORE go on at the state of the newest record."""
    patch.setattr(
        acceptance,
        "_source_state",
        lambda log, _chain: SourceState(log.commit(log.committed()[-1]).state),
    )


def record_without_acceptance(patch: pytest.MonkeyPatch) -> None:
    """Let the record of the batch that was given up have the state before it, whatever was accepted."""
    patch.setattr(view, "_state_after", _before_whatever_was_accepted)


def _before_whatever_was_accepted(
    _view: LogView, entry: OffsetEntry, committed: CommittedBatch
) -> tuple[str | None, bool]:
    return (entry.slice.before if committed.abandoned else committed.state), False


def accept_leaves_the_open_batch(patch: pytest.MonkeyPatch) -> None:
    """Accept the table without giving the open batch up."""
    patch.setattr(acceptance, "_to_close", lambda *_args: [])


def accept_logs_nothing(patch: pytest.MonkeyPatch) -> None:
    """Accept the table without a batch that is given up if none is open."""
    patch.setattr(acceptance, "accept_table", _accept_as_it_is)


def _accept_as_it_is(log: Any, engine: Any, table: str, *, reload_undecidable: bool) -> Acceptance:
    reading = acceptance._read(log, engine, table)
    seen = acceptance._consequences(reading, reload_undecidable=reload_undecidable)
    return log.put(acceptance._acceptance(reading, seen))


def accept_looks_first(patch: pytest.MonkeyPatch) -> None:
    """Look at the table, and give the open batch up after that."""
    original = acceptance._consequences
    looks: dict[int, Any] = {}

    def look(reading: Any, **how: Any) -> Any:
        if id(reading.log) not in looks:
            looks[id(reading.log)] = original(reading, **how)
        return looks[id(reading.log)]

    patch.setattr(acceptance, "_consequences", look)


def no_mixed_check(patch: pytest.MonkeyPatch) -> None:
    """Take the state of a batch that came after a RESTORE of which it did not know."""
    original = recovery.state_after

    def after(chain: Chain, entries: Any) -> SourceState:
        seen = original(chain, entries)
        return SourceState(chain.batches[-1][1].state) if seen.problem == "mixed" else seen

    patch.setattr(recovery, "state_after", after)


def lost_state_is_the_initial_one(patch: pytest.MonkeyPatch) -> None:
    """Let any run go on from a table that was accepted without a state."""
    patch.setattr(view.LogView, "is_state_lost", False)


def guess_unreadable(patch: pytest.MonkeyPatch) -> None:
    """Take a commit that cannot be read for one without rows."""
    original = recovery.chain_of
    patch.setattr(recovery, "chain_of", lambda found, recorded: original(replace(found, oldest=0), recorded))


STATE_RULES = (
    StateRule(
        "an entry waits for the record of the one before",
        logged_early,
        a_batch_left_open,
        "doubled",
    ),
    StateRule("the state is the commit's", state_from_memory, rows_that_come_while_a_batch_runs, "lost"),
    StateRule("what is given up leaves the state before it", abandon_keeps_after, a_batch_given_up, "lost"),
    StateRule("an open refresh is not given up", abandon_refresh, a_refresh_that_is_given_up, "lost"),
    StateRule(
        "accept-table does not give an open refresh up",
        accept_gives_up_a_refresh,
        a_restore_beside_a_refresh,
        "lost",
    ),
    StateRule("a refresh begins at the initial value", refresh_keeps_state, a_refresh, "lost"),
    StateRule("the state is that of the restored version", restore_newest_record, a_restore, "lost"),
    StateRule("... through further RESTOREs", restore_newest_record, a_restore_of_a_restore, "lost"),
    StateRule(
        "... and the initial one for another table",
        restore_newest_record,
        a_table_that_was_created_again,
        "lost",
    ),
    StateRule("the record copies the acceptance", record_without_acceptance, a_restore, "lost"),
    StateRule("accept-table logs what it gives up", accept_logs_nothing, a_restore, "lost"),
    StateRule(
        "accept-table gives the open batch up",
        accept_leaves_the_open_batch,
        an_application_that_lives_on,
        "doubled",
    ),
    StateRule(
        "accept-table looks when nothing can come any more",
        accept_looks_first,
        an_application_that_commits_meanwhile,
        "doubled",
    ),
    StateRule(
        "a batch that came after a RESTORE is refused",
        no_mixed_check,
        an_application_that_commits_after_a_restore,
        "lost",
    ),
    StateRule(
        "without a state only a full refresh goes on",
        lost_state_is_the_initial_one,
        a_run_after_no_state,
        "doubled",
    ),
    StateRule("what cannot be read is not guessed", guess_unreadable, a_log_that_was_cleaned, "doubled"),
)
