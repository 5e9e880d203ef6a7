"""The deeds that made ``tests/fixtures/checkpoint_0_2``: a checkpoint with a record of every kind.

The fixture is what version 0.2 wrote before its records had one decoder. It is not made again: the tests do
the same deeds, and compare what is written now.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airflow_provider_scope.core.records import Attempt, Return, Settlement
from airflow_provider_scope.core.takeover import Decision
from tests.crash.world import NOW_MS, MemoryWorld
from tests.support.dbt_scope import DbtScopeOnMemory

FIXTURE = Path(__file__).parent.parent / "fixtures" / "checkpoint_0_2"


class SameIds(MemoryWorld):
    """A world whose pipeline has the same id each time."""

    def new_id(self) -> str:
        return "6c1f0a52-9d0e-4c0b-8f57-2f1f5f1f6a10"


def do_the_deeds() -> SameIds:
    """Let dbt-scope load, take over, load, put aside, settle, restore, accept; and leave a batch open."""
    world = SameIds(interval=2)
    log = world.log()
    for number in range(3):
        world.drop(f"by dbt-scope {number}.parquet", at=9_000 - number)
    DbtScopeOnMemory(world).run()
    for number in range(5):
        world.drop(f"ours é {number}.parquet", at=8_000 - number)
    world.run()
    taken = log.newest_takeover()
    assert taken
    assert taken.watermark
    log.put_decision(Decision(watermark=taken.watermark, loaded=True))
    first = log.logged()[0]
    log.put_attempt(Attempt(seq=first, number=0, table_version=1))
    log.put_attempt(Attempt(seq=first, number=1, table_version=1, void=True))
    log.put_settlement(Settlement(seq=first, number=0, landed=False, table_version=2))
    log.use_quarantine("file:///table_quarantine")
    log.use_quarantine("file:///another_quarantine")
    aside = log.offset(first).files[0].path
    log.put_return(Return(number=0, after=log.logged()[-1], files=(aside,)))
    world.run()
    _record_again(world, quarantined={"a is not int": 2, "é": 1}, columns="id bigint, `a b` string")
    path = world.drop("with a sum.parquet", at=7_000)
    summed = world.memory.source[path]._replace(
        created_ms=NOW_MS - 7_000_001, content_md5="sQqNsWTwhUgZtBkUt3/x0A=="
    )
    world.memory.source[path] = summed
    _run_and_die_before_the_commit_record(world)
    world.restore(world.version() - 1)
    world.accept()
    world.run()
    world.drop("open.parquet", at=6_000)
    _run_and_die_before_the_commit_record(world)
    world.drop("new.parquet", at=5_000)
    return world


def _record_again(world: MemoryWorld, **changes: object) -> None:
    last = world.log().commit(world.log().committed()[-1])
    del world.memory.control[f"{world.checkpoint}/commits/{last.seq:020}"]
    world.log().put_commit(replace(last, **changes))  # type: ignore[arg-type]


def _run_and_die_before_the_commit_record(world: MemoryWorld) -> None:
    before = dict(world.memory.control)
    world.run()
    logged = {path: data for path, data in world.memory.control.items() if "/offsets/" in path}
    world.memory.control = before | logged
