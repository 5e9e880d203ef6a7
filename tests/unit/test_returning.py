"""Files that were given back from the quarantine count as not loaded, until a later batch has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_scope.checkpoint.log import CheckpointLog
from airflow_provider_scope.core.record_text import decode, encode
from airflow_provider_scope.core.records import CommitRecord, Return, TableIdentity
from airflow_provider_scope.engines.places import quarantine_of
from airflow_provider_scope.exceptions import CheckpointCorruptError, InputError, TableUnreadableError
from airflow_provider_scope.execution import returning
from airflow_provider_scope.execution.loaded import read_loaded
from airflow_provider_scope.storage.local import LocalStorage
from airflow_provider_scope.table.quarantine import Aside, read_quarantine
from tests.crash.world import MemoryWorld

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE = "6c1f0a52-9d0e-4c0b-8f57-2f1f5f1f6a10"


def loaded(world: MemoryWorld, *names: str) -> list[str]:
    paths = [world.drop(name, 1_000 - number) for number, name in enumerate(names)]
    world.run()
    return paths


def seen(world: MemoryWorld) -> set[str]:
    log = world.log()
    view = read_loaded(log, world.audit_files(log), (world.root,), 0)
    return {path for path, _ in view.seen.items()}


@pytest.mark.parametrize("interval", [1, 100], ids=["from a snapshot", "from the entries"])
def test_a_file_counts_as_new_until_it_is_loaded_again(interval):
    world = MemoryWorld(interval=interval)
    a, b = loaded(world, "a", "b")

    world.log().put_return(Return(number=0, after=world.log().logged()[-1], files=(a,)))
    between = seen(world)
    again = world.run()
    after = seen(world)
    nothing = world.run()

    assert between == {b}
    assert after == {a, b}
    assert (again.files, nothing.files) == (1, 0)
    assert world.rows()[(a, 0, 1)] == 2  # this engine put nothing aside: only the counting is looked at


def test_a_file_is_given_back_twice(world_of_one):
    world, path = world_of_one
    for number in range(2):
        world.log().put_return(Return(number=number, after=world.log().logged()[-1], files=(path,)))
        assert world.run().files == 1
        assert world.run().files == 0


@pytest.fixture
def world_of_one():
    world = MemoryWorld()
    (path,) = loaded(world, "a")
    return world, path


def test_a_record_of_an_older_refresh_means_nothing(world_of_one):
    world, path = world_of_one
    world.log().put_return(Return(number=0, after=0, files=(path,)))
    world.run(refresh=True)

    assert seen(world) == {path}
    assert world.run().files == 0


def test_two_who_give_back_at_the_same_time_both_do(world_of_one):
    world, path = world_of_one
    world.log().put_return(Return(number=0, after=0, files=("file:///in/other",)))
    real = CheckpointLog.returns

    class Late(CheckpointLog):
        looks = 0

        def returns(self) -> list[Return]:
            self.looks += 1
            return [] if self.looks == 1 else real(self)

    log = Late(world.storage, world.checkpoint)

    record = returning.give_back(log, [path], [Aside(0, path, "cut")])

    assert (record.number, record.files) == (1, (path,))


WHOLE = Aside(3, "file:///in/whole", "it is cut")
PART = Aside(3, "file:///in/part", None, {"a is not int": 2}, 7, '{"a":"x"}')


def test_only_what_was_put_aside_as_a_whole_is_given_back():
    log = MemoryWorld().log()
    returning.check(log, ["file:///in/whole"], [WHOLE, PART])
    with pytest.raises(InputError, match="2 records of it were quarantined, but the file was not"):
        returning.check(log, ["file:///in/part"], [WHOLE, PART])
    with pytest.raises(InputError, match="is not in the quarantine"):
        returning.check(log, ["file:///in/none"], [WHOLE, PART])


def put_commit(world: MemoryWorld, seq: int, *, abandoned: bool) -> None:
    identity = TableIdentity("id")
    world.log().put_commit(
        CommitRecord(
            seq=seq,
            table=identity,
            table_version=0,
            files=1,
            size_bytes=1,
            committed_at_ms=0,
            abandoned=abandoned,
        )
    )


def test_what_no_longer_counts_is_left_out(world_of_one):
    world, path = world_of_one
    world.drop("b", 500)
    world.run(refresh=True)
    (number,) = [seq for seq in world.log().committed() if seq >= (world.log().offset(1).refresh_start or 0)]
    before, now = Aside(0, path, "cut"), Aside(number, path, "cut")
    open_batch, rows = Aside(number + 1, path, "cut"), Aside(number, path, None, {"r": 1})

    assert returning.counting(world.log(), [before, now, open_batch, rows]) == [now, rows]
    world.log().put_return(Return(number=0, after=number, files=(path,)))
    assert returning.counting(world.log(), [before, now, open_batch, rows]) == [rows]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"after":1,"files":["a"],"format":1,"number":1}\n', "says number=1"),
        ('{"after":1,"files":"a","format":1,"number":0}\n', "expected a list of texts"),
        ('{"after":1,"files":[1],"format":1,"number":0}\n', "expected a list of texts"),
        ('{"files":[],"format":1,"number":0}\n', "has no key 'after'"),
    ],
)
def test_a_record_that_cannot_be_is_refused(text, what):
    with pytest.raises(CheckpointCorruptError, match=what):
        decode(Return, "returned/0", text.encode(), number=0)


def test_counts_that_cannot_be_are_refused(world_of_one):
    world, _ = world_of_one
    good = encode(world.log().commit(0))
    bad = good.replace(b'"seq"', b'"quarantined":{"r":"1"},"seq"')

    with pytest.raises(CheckpointCorruptError, match="expected a number for each name"):
        decode(CommitRecord, "commits/0", bad, seq=0)


# ---- the table -----------------------------------------------------------------------------------------


def a_quarantine(folder: Path, **columns: list[object]) -> str:
    write_deltalake(str(folder), pa.table(columns), mode="append")
    return f"file://{folder}"


def test_what_lies_in_the_quarantine_is_told_by_batch_and_file(tmp_path):
    for number in (7, 2):
        a_quarantine(
            tmp_path / "q",
            pipeline=[PIPELINE, PIPELINE, "another"],
            batch=[1, 1, 1],
            file=["a", "b", "c"],
            record=pa.array([number, None, 1], pa.int64()),
            rule=["x is not int", "it is cut", "x"],
            raw=pa.array([f"raw {number}", None, "raw"], pa.string()),
        )

    found = read_quarantine(f"file://{tmp_path}/q", LocalStorage(), PIPELINE)

    assert found == [
        Aside(1, "a", None, {"x is not int": 2}, 2, "raw 2"),
        Aside(1, "b", "it is cut"),
    ]
    assert [aside.records for aside in found] == [2, 0]


def test_no_quarantine_is_an_empty_one_and_a_damaged_one_is_an_error(tmp_path):
    assert read_quarantine(f"file://{tmp_path}/none", LocalStorage(), PIPELINE) == []
    place = a_quarantine(tmp_path / "q", pipeline=["a"], batch=[1])
    with pytest.raises(TableUnreadableError, match="it is not a quarantine"):
        read_quarantine(place, LocalStorage(), PIPELINE)
    for path in (tmp_path / "q").glob("*.parquet"):
        path.unlink()
    with pytest.raises(TableUnreadableError, match="is missing"):
        read_quarantine(place, LocalStorage(), PIPELINE)


@pytest.mark.parametrize(
    "named",
    ["/data/t", "/data/t/q", "/data", "abfss://lake@account.dfs.core.windows.net/q"],
    ids=["the table", "inside", "around", "elsewhere"],
)
def test_a_quarantine_that_cannot_be_there_is_refused(named):
    with pytest.raises(InputError, match="is inside the table"):
        quarantine_of("file:///data/t", named)


def test_the_quarantine_is_beside_the_table():
    assert quarantine_of("file:///data/t", None) == "file:///data/t_quarantine"
    assert quarantine_of("file:///data/t", "/bad/t") == "file:///bad/t"


def test_the_tables_that_took_what_could_not_be_loaded_are_remembered_in_order():
    log = MemoryWorld().log()

    assert log.quarantines() == []
    assert log.use_quarantine("file:///a") == ["file:///a"]
    assert log.use_quarantine("file:///a") == ["file:///a"]
    assert log.use_quarantine("file:///b") == ["file:///a", "file:///b"]
    assert log.use_quarantine("file:///a") == ["file:///a", "file:///b", "file:///a"]
