"""Damage each record of a checkpoint, in each way, and see that a run refuses it and writes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_scope.exceptions import (
    CheckpointCorruptError,
    CheckpointVersionError,
    ScopeProviderError,
)
from tests.crash.tally import Tally
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import Counting

if TYPE_CHECKING:
    from collections.abc import Callable


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(data: bytes) -> bytes:
    return b""


def without_its_last_line(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:-1])


def garbled(data: bytes) -> bytes:
    return b"\x80" + data[1:]


def of_zeros(data: bytes) -> bytes:
    """Return what a file system shows after a power cut: the length is there, the content is not."""
    return bytes(len(data))


def of_another_kind(data: bytes) -> bytes:
    return b"[1]\n"


def with_a_wrong_number(data: bytes) -> bytes:
    return b'{"format":1,"number":7,"seq":7}\n'


def of_a_newer_format(data: bytes) -> bytes:
    header, *rest = data.splitlines(keepends=True)
    newer = json.dumps({**json.loads(header), "format": 99}).encode() + b"\n"
    return b"".join([newer, *rest])


DAMAGES: dict[Callable[[bytes], bytes], type[ScopeProviderError]] = {
    cut_short: CheckpointCorruptError,
    emptied: CheckpointCorruptError,
    without_its_last_line: CheckpointCorruptError,
    garbled: CheckpointCorruptError,
    of_zeros: CheckpointCorruptError,
    of_another_kind: CheckpointCorruptError,
    with_a_wrong_number: CheckpointCorruptError,
    of_a_newer_format: CheckpointVersionError,
}
SEGMENT_DAMAGES = (cut_short, emptied, garbled, of_zeros, of_another_kind)


def a_world() -> MemoryWorld:
    """Make a world with a record of every kind, an open batch, a segment, and a new file."""
    world = MemoryWorld(interval=2)
    for number in (1, 2, 3):
        world.drop(f"f{number}", at=1000 - number)
    world.run()
    world.restore(0)
    world.accept()
    for number in (4, 5, 6):
        world.drop(f"f{number}", at=1000 - number)
    world.run()
    last = world.log().committed()[-1]
    del world.memory.control[f"{world.checkpoint}/commits/{last:020}"]
    world.drop("f7", at=1)
    return world


def read_by_a_run(world: MemoryWorld) -> list[str]:
    """Return the records that the next run reads."""
    gate = Counting()
    world.run(gate)
    names = [call.name.removeprefix("read ") for call in gate.calls if call.name.startswith("read ")]
    records = ("pipeline.json", "offsets/", "commits/", "accepted/")
    return sorted({name for name in names if name.startswith(records)})


def damage_everything() -> tuple[Tally, int]:
    """Damage what a run reads, one record and one way at a time.

    :return: What was found, and how many damages were tried. Nobody is killed here.
    """
    tally, tried = Tally(), 0
    present = set(a_world().record_names())
    for name in sorted(set(read_by_a_run(a_world())) & present):
        for damage, error in DAMAGES.items():
            tried += 1
            tally.failures += refusal_of(name, damage, error)
    tally.failures += damaged_segments()
    return tally, tried + len(SEGMENT_DAMAGES)


def refusal_of(name: str, damage: Callable[[bytes], bytes], error: type[ScopeProviderError]) -> list[str]:
    """Damage one record, run, and say what is wrong with the answer."""
    world = a_world()
    path = f"{world.checkpoint}/{name}"
    world.memory.control[path] = damage(world.memory.control[path])
    before, versions = dict(world.memory.control), list(world.delta.versions)
    where = f"{name} {damage.__name__.replace('_', ' ')}"
    try:
        world.run()
    except ScopeProviderError as err:
        wrong = []
        if type(err) is not error:
            wrong.append(f"{where}: the run ended with {err!r}, not {error.__name__}")
        elif path not in err.what:
            wrong.append(f"{where}: the error does not name {path}: {err.what}")
    else:
        wrong = [f"{where}: the run did not notice"]
    if world.memory.control != before or world.delta.versions != versions:
        wrong.append(f"{where}: the run wrote something")
    return wrong


def damaged_segments() -> list[str]:
    """Damage the segments, a cache of the log: the run reads the log instead."""
    wrong = []
    for damage in SEGMENT_DAMAGES:
        world = a_world()
        expected = a_world()
        expected.run()
        for path, data in world.memory.control.items():
            if path.endswith(".parquet"):
                world.memory.control[path] = damage(data)
        world.run()
        if world.rows() != expected.rows():
            wrong.append(f"segment {damage.__name__}: the table has {sorted(world.rows().elements())}")
    return wrong
