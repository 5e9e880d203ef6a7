"""A pipeline that is vacuumed now and then ends like one that never is, whatever else happens to it."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_scope.exceptions import BatchOutcomeUnknownError
from airflow_provider_scope.protocol import acceptance, repair
from tests.crash.world import MemoryWorld


class Vacuumed(RuleBasedStateMachine):
    """The same is done to two pipelines; of one, all records are purged that may be."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.vacuumed = self.both = [MemoryWorld(interval=2), MemoryWorld(interval=2)]

    @initialize()
    def begin(self) -> None:
        self.files_arrive([500])
        self.run_both()

    def files_arrive(self, times: list[int]) -> None:
        for at in times:
            name = f"{len(self.kept.memory.source):03}"
            for world in self.both:
                world.drop(name, at)

    def run_both(self, **asked: Any) -> None:
        for world in self.both:
            world.run(**asked)

    @rule(times=st.lists(st.integers(0, 20), max_size=5), at_once=st.integers(1, 3))
    def run(self, times: list[int], at_once: int) -> None:
        self.files_arrive(times)
        for world in self.both:
            world.max_files = at_once
        self.run_both()

    @rule(max_batches=st.sampled_from([None, 1]))
    def refresh(self, max_batches: int | None) -> None:
        self.run_both(refresh=True, max_batches=max_batches)

    @rule()
    def replace_a_range(self) -> None:
        self.run_both(where="day = 1")

    @rule(retain=st.integers(1, 4))
    def vacuum(self, retain: int) -> None:
        self.vacuumed.vacuum(retain=retain)

    @precondition(lambda self: self.kept.version() > 0)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, self.kept.version() - 1))
        for world in self.both:
            world.restore(to)
        self.accept()

    @rule()
    def recreate(self) -> None:
        for world in self.both:
            world.recreate()
        self.accept()

    def accept(self) -> None:
        """Accept both tables; where one is refused, do to both what the error says."""
        errors = [refusal(world) for world in self.both]
        if errors[0] and not errors[1]:
            raise AssertionError("the vacuum made an error vanish: " + errors[0])
        assert errors[1] == errors[0] or "vacuum" in errors[1]
        undone = any("undid the full refresh" in error for error in errors)
        for world in self.both:
            world.accept(reload_undecidable=any(errors))
        if undone:
            self.run_both(refresh=True)

    @rule()
    def rebuild(self) -> None:
        for world in self.both:
            log = world.log()
            repair.rebuild(log, world.audit_files(log))

    @invariant()
    def the_rows_are_the_same(self) -> None:
        assert self.vacuumed.rows() == self.kept.rows()

    @invariant()
    def the_next_run_would_load_the_same(self) -> None:
        if self.kept.delta.versions:
            planned = [[entry.slice for entry in world.plan().new] for world in self.both]
            assert planned[0] == planned[1]


def refusal(world: MemoryWorld) -> str:
    """Return why a table is not accepted as it is; "" if it would be."""
    log = world.log()
    try:
        acceptance.consequences_of(log, world.engine(lambda call, effect, torn=None: effect()), world.table)
    except BatchOutcomeUnknownError as err:
        return err.what
    return ""


TestVacuumed = Vacuumed.TestCase
TestVacuumed.settings = settings(stateful_step_count=15)
