"""What a run reads does not grow with its pipeline's age; and what it does where the short way is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from airflow_provider_scope.exceptions import CheckpointGapError
from airflow_provider_scope.protocol.log import READ_AT_MOST, Tail
from airflow_provider_scope.protocol.records import Attempt
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Counting
from tests.support.processes import PROJECT


def aged(batches: int, *, at_once: int = 7) -> MemoryWorld:
    """Return a pipeline that has loaded one file a batch, in several runs."""
    world = MemoryWorld(interval=10)
    world.max_files = 1
    for first in range(0, batches, at_once):
        for number in range(first, min(first + at_once, batches)):
            world.drop(f"f{number:04}", at=1_000_000 - number)
        world.run()
    return world


def calls(world: MemoryWorld) -> list[str]:
    gate = Counting()
    report = world.run(gate)
    assert (report.batches, report.already_loaded) == ([], len(world.memory.source))
    return [call.name for call in gate.calls]


def test_an_idle_run_lists_neither_entries_nor_records_whatever_the_age():
    young, old = calls(aged(20)), calls(aged(300))

    for names in (young, old):
        assert not {"list offsets", "list commits", "list attempts"} & set(names), names
    assert len(old) - len(young) <= 2  # segments
    assert Counter(name.split("/")[0] for name in old)["read offsets"] <= 4
    assert len(old) <= 20


def test_a_run_with_one_new_file_writes_little():
    world = aged(300)
    world.drop("new", at=5)
    gate = Counting()

    world.run(gate)

    written = [call.name.split()[1] for call in gate.calls if call.writes and " " in call.name]
    sizes = sum(
        len(data)
        for path, data in world.memory.control.items()
        if any(path.endswith(name) for name in written)
    )
    assert sizes < 8_000


def test_runs_do_not_import_pandas():
    """It takes half a second of each run, and 45 MiB; pyarrow imports it unasked."""
    code = (
        "import sys\nfrom tests.unit.test_age import aged\n"
        "world = aged(30)\nworld.run()\nworld.drop('f0001', at=2_000_000)\nworld.run()\n"
        "print([name for name in ('pandas', 'pyarrow') if name in sys.modules])"
    )

    process = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, stdout=subprocess.PIPE, text=True, check=True
    )

    assert process.stdout.strip() == "['pyarrow']"


@pytest.mark.parametrize(
    "hint",
    [b"", b"{", b"[]", b'{"seq": true}', b'{"seq": -1, "refreshStart": null}', b'{"seq": 10000}', None],
)
def test_a_hint_that_says_nothing_costs_a_list_and_nothing_else(hint):
    world = aged(20)
    path = f"{world.checkpoint}/watermark.json"
    if hint is None:
        del world.memory.control[path]
    else:
        world.memory.control[path] = hint

    tail = Tail(world.log())
    tail.catch_up()

    assert (tail.committed, tail.logged) == ([*range(20)], range(20))


@pytest.mark.parametrize("behind", [0, 1, 30, READ_AT_MOST - 1, READ_AT_MOST, 90])
def test_a_hint_that_is_old_is_read_on_from(behind):
    world = aged(100)
    path = f"{world.checkpoint}/watermark.json"
    value = json.loads(world.memory.control[path])
    world.memory.control[path] = json.dumps({**value, "seq": 99 - behind}).encode()

    tail = Tail(world.log())
    tail.catch_up()

    assert (tail.committed[-1], tail.logged.stop) == (99, 100)
    assert [tail.find_commit(seq).seq for seq in range(100)] == [*range(100)]
    assert [tail.entry(seq).seq for seq in range(100)] == [*range(100)]


def test_an_entry_that_is_missing_before_one_that_is_there_is_named():
    world = aged(20)
    world.drop("a", at=10)
    world.drop("b", at=9)
    with pytest.raises(Exception, match="stopped"):
        world.run(stop_at_the_first_batch)
    del world.memory.control[f"{world.checkpoint}/offsets/{20:020}"]

    with pytest.raises(CheckpointGapError, match="20 is missing"):
        world.run()


def stop_at_the_first_batch(call, effect, torn=None):
    if call.by_application:
        raise RuntimeError("stopped")
    return effect()


def test_an_attempt_that_is_missing_before_one_that_is_there_is_named():
    log = aged(1).log()
    for number in (0, 2):
        log.put(Attempt(seq=4, number=number, table_version=1))

    with pytest.raises(CheckpointGapError, match="Attempt 1 of batch 4 is missing"):
        log.attempts(4)
    assert log.attempts(3) == []
