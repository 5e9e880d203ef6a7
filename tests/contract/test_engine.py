"""What every engine does.

Two engines of the tests and the Spark application, called in this process, do all of it. The product's own
runners begin a process or a job for each run: they do what ``also`` names. What a job cannot do is not asked
of it: a SCOPE job writes no transaction, and its batch takes several versions of the table.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from airflow_provider_scope.exceptions import (
    InputError,
    ScopeProviderError,
    SourceFileChangedError,
    SourceFileGoneError,
    TableDivergedError,
)
from airflow_provider_scope.protocol.engine import Engine, Work
from airflow_provider_scope.protocol.records import encode_offset
from airflow_provider_scope.protocol.recovery import (
    MISSING_TABLE,
    NO_BASELINE,
    Baseline,
    CommittedBatch,
    Restored,
    TableState,
)
from airflow_provider_scope.specs import SparkEngine
from airflow_provider_scope.stores.local import LocalStorage
from tests.crash.scope_emulator import EmulatorWorld
from tests.crash.spark_world import SparkWorld
from tests.crash.world import DeltaWorld, MemoryWorld
from tests.support.delta_engine import TABLE, local
from tests.support.emulators import start_emulator
from tests.support.faulty_storage import open_gate
from tests.support.memory_engine import Version
from tests.support.values import a_refresh, an_entry, an_ingest
from tests.support.warm import SessionEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.values import FileEntry
    from tests.support.memory_engine import Row

__all__ = ["start_emulator"]

_Test = TypeVar("_Test")

PIPELINE = "11111111-1111-1111-1111-111111111111"
OTHER = "22222222-2222-2222-2222-222222222222"


@dataclass
class Subject:
    """An engine, with a source and a table of its own."""

    world: DeltaWorld | MemoryWorld
    engine: Engine

    def file(self, name: str, *, ids: int = 1, day: int = 1, at: int = 100) -> FileEntry:
        path = self.world.drop(name, at, ids=ids, day=day)
        (file,) = (f for f in self.world.storage.walk(self.world.root) if f.path == path)
        return file

    def remove(self, file: FileEntry) -> None:
        self.world.hide(file.path.removeprefix(f"{self.world.root}/"))

    def work(self, pipeline: str, entries: Sequence[OffsetEntry], first: int = 0) -> Work:
        """Log entries, as the loop does before it runs them."""
        checkpoint = self.world.checkpoint if pipeline == PIPELINE else f"{self.world.checkpoint}_of_another"
        for entry in entries:
            self.world.storage.replace(f"{checkpoint}/offsets/{entry.seq:020}", encode_offset(entry))
        return Work(pipeline, self.world.table, checkpoint, first)

    def run(self, *entries: OffsetEntry, pipeline: str = PIPELINE, first: int = 0) -> None:
        self.engine.run(self.work(pipeline, entries, first), entries)

    def fence(self, entry: OffsetEntry) -> None:
        self.engine.fence(self.work(PIPELINE, [entry]), entry)

    def probe(self, pipeline: str | None = PIPELINE, baseline: Baseline = NO_BASELINE) -> TableState:
        return self.engine.probe(self.world.table, pipeline, baseline)

    def committed(self, pipeline: str = PIPELINE) -> dict[int, tuple[int, int | None, bool]]:
        """Return version, rows and whether it was abandoned of every batch that the probe shows."""
        return {seq: seen(batch) for seq, batch in self.probe(pipeline).committed.items()}

    def rows(self) -> Counter[Row]:
        return self.world.rows()

    def recreate(self) -> None:
        """Drop the table and create it again without rows."""
        if isinstance(self.world, DeltaWorld):
            shutil.rmtree(local(self.world.table))
            write_deltalake(local(self.world.table), TABLE.empty_table(), mode="error")
        else:
            self.world.recreate()

    def foreign_commit(self, user_metadata: str) -> None:
        """Let another program add a row, with text of its own in the commit."""
        if isinstance(self.world, DeltaWorld):
            rows = pa.table({"id": [7], "day": [7], "file": ["elsewhere"]}, schema=TABLE)
            properties = CommitProperties(custom_metadata={"userMetadata": user_metadata})
            write_deltalake(local(self.world.table), rows, mode="append", commit_properties=properties)
        else:
            table = self.world.delta
            rows_after = table.rows + Counter([("elsewhere", 7, 7)])
            table.versions.append(Version(rows_after, table.versions[-1].txn))


def seen(committed: CommittedBatch) -> tuple[int, int | None, bool]:
    return committed.version, committed.rows, committed.abandoned


def rows_of(*files: tuple[FileEntry, int, int]) -> Counter[Row]:
    """Return the rows of files, each with its number of ids and its day."""
    return Counter((file.path, number, day) for file, ids, day in files for number in range(ids))


def also(*engines: str) -> Callable[[_Test], _Test]:
    """Have these engines do it, too."""

    def name(test: _Test) -> _Test:
        test.engines = engines  # type: ignore[attr-defined]
        return test

    return name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        engines = ["memory", "delta", "spark", *getattr(metafunc.function, "engines", ())]
        # The runner starts a Spark for each run.
        marks = {"spark": [pytest.mark.spark], "spark runner": [pytest.mark.spark, pytest.mark.loads]}
        params = [pytest.param(name, marks=marks.get(name, ())) for name in engines]
        metafunc.parametrize("subject", params, indirect=True)


@pytest.fixture
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    match request.param:
        case "memory":
            world: Any = MemoryWorld()
        case "spark runner":
            world = SparkWorld(tmp_path)
        case "scope runner":
            emulator = request.getfixturevalue("start_emulator")(tmp_path)
            world = EmulatorWorld(tmp_path, emulator.url)
        case _:
            world = DeltaWorld(tmp_path)
    if request.param == "spark":
        ingest = an_ingest(sql="SELECT id, day, source_file_uri AS file FROM @data")
        session = request.getfixturevalue("spark")
        disk = LocalStorage()
        engine = SessionEngine(
            ingest=ingest,
            storage=disk,
            table_storage=disk,
            session=session,
            settings=SparkEngine(),
            stores={},
            report=lambda _: None,
            log_file=tmp_path / "spark.log",
            new_id=lambda: "plan",
            task="dag.task",
        )
        return Subject(world, engine)
    return Subject(world, world.engine(open_gate))


# ---- run --------------------------------------------------------------------------------------------


def test_a_batch_is_one_commit_with_its_number_whatever_it_holds(subject: Subject) -> None:
    a, b, empty = subject.file("a", ids=2), subject.file("b", ids=3), subject.file("empty", ids=0)

    subject.run(an_entry(0, a, b), an_entry(1, empty))

    assert subject.rows() == rows_of((a, 2, 1), (b, 3, 1))
    assert subject.probe().txn == 1
    assert subject.committed() == {0: (0, 5, False), 1: (1, 0, False)}


@also("scope runner")
def test_running_a_batch_twice_changes_nothing(subject: Subject) -> None:
    entries = [an_entry(0, subject.file("a")), an_entry(1, subject.file("b"))]
    subject.run(*entries)
    before = subject.probe(), subject.rows()

    subject.run(*entries)
    subject.run(entries[0])

    assert (subject.probe(), subject.rows()) == before


@also("spark runner", "scope runner")
def test_a_run_goes_on_where_another_one_stopped_in_the_order_of_its_batches(subject: Subject) -> None:
    a, b, c = (subject.file(name) for name in "abc")
    subject.run(an_entry(0, a))

    subject.run(an_entry(0, a), an_entry(1, b), an_entry(2, c))

    assert subject.rows() == rows_of((a, 1, 1), (b, 1, 1), (c, 1, 1))
    versions = [version for _, (version, _, _) in sorted(subject.committed().items())]
    assert versions == sorted({*versions})
    assert len(versions) == 3


@also("spark runner", "scope runner")
def test_a_run_stops_at_its_first_failed_batch(subject: Subject) -> None:
    a, gone, c = (subject.file(name) for name in "abc")
    subject.remove(gone)

    with pytest.raises(SourceFileGoneError, match=gone.path):
        subject.run(an_entry(0, a), an_entry(1, gone), an_entry(2, c))

    assert subject.rows() == rows_of((a, 1, 1))
    assert subject.probe().txn == 0


@also("scope runner")
def test_a_file_that_changed_since_it_was_logged_is_not_read(subject: Subject) -> None:
    before = subject.file("a", at=100)
    subject.file("a", at=50, ids=2)

    with pytest.raises(SourceFileChangedError, match=before.path):
        subject.run(an_entry(0, before))

    assert subject.probe() == MISSING_TABLE


def test_a_batch_whose_predecessor_is_missing_is_refused(subject: Subject) -> None:
    a, c = subject.file("a"), subject.file("c")
    subject.run(an_entry(0, a))

    with pytest.raises(TableDivergedError):
        subject.run(an_entry(2, c))

    assert subject.rows() == rows_of((a, 1, 1))
    assert subject.committed() == {0: (0, 1, False)}


@also("spark runner")
def test_a_later_batch_on_a_missing_table_is_refused(subject: Subject) -> None:
    with pytest.raises(TableDivergedError):
        subject.run(an_entry(1, subject.file("b")))

    assert subject.probe() == MISSING_TABLE


# ---- overwrite --------------------------------------------------------------------------------------


def test_the_first_batch_that_can_be_in_the_table_makes_it_and_others_do_not(subject: Subject) -> None:
    """Those below it were given up before there was a table."""
    a, b = subject.file("a"), subject.file("b")

    for seq in (1, 3):
        with pytest.raises(TableDivergedError):
            subject.run(an_entry(seq, a), first=2)
    subject.run(an_entry(2, a), an_entry(3, b), first=2)

    assert subject.rows() == rows_of((a, 1, 1), (b, 1, 1))
    assert subject.probe().txn == 3


def test_a_batch_that_was_given_up_and_made_the_table_keeps_the_next_one_out(subject: Subject) -> None:
    a, b = subject.file("a"), subject.file("b")
    subject.run(an_entry(0, a))

    with pytest.raises(TableDivergedError):
        subject.run(an_entry(1, b), first=1)

    assert subject.rows() == rows_of((a, 1, 1))


@also("scope runner")
def test_a_refresh_replaces_all_rows_and_may_overtake_open_batches(subject: Subject) -> None:
    a, b, c, left_open = (subject.file(name) for name in "abcd")
    subject.run(an_entry(0, a))
    subject.work(PIPELINE, [an_entry(1, left_open)])

    subject.run(a_refresh(2, b), an_entry(3, c, refresh_start=2, overwrite_start=2))

    assert subject.rows() == rows_of((b, 1, 1), (c, 1, 1))
    assert subject.probe().txn == 3


def test_a_batch_that_a_refresh_overtook_writes_nothing(subject: Subject) -> None:
    a, b, late = (subject.file(name) for name in "abc")
    subject.run(an_entry(0, a), a_refresh(2, b))
    before = subject.probe()

    subject.run(an_entry(1, late))

    assert subject.rows() == rows_of((b, 1, 1))
    assert subject.probe() == before


def test_a_refresh_may_make_the_table(subject: Subject) -> None:
    b = subject.file("b")

    subject.run(a_refresh(1, b))

    assert subject.rows() == rows_of((b, 1, 1))
    assert subject.committed() == {1: (0, 1, False)}


def test_a_range_is_replaced_and_its_further_batches_add_to_it(subject: Subject) -> None:
    old_1, old_2 = subject.file("a", day=1), subject.file("b", day=2)
    new, more = subject.file("c", day=1, ids=2), subject.file("d", day=1)
    subject.run(an_entry(0, old_1, old_2))

    subject.run(
        a_refresh(1, new, where="day = 1"),
        an_entry(2, more, where="day = 1", refresh_start=1),
    )

    assert subject.rows() == rows_of((old_2, 1, 2), (new, 2, 1), (more, 1, 1))
    assert subject.committed() == {0: (0, 2, False), 1: (1, 2, False), 2: (2, 1, False)}


def test_a_range_may_make_the_table(subject: Subject) -> None:
    file = subject.file("a", day=1)

    subject.run(a_refresh(0, file, where="day = 1"))

    assert subject.rows() == rows_of((file, 1, 1))


def test_a_range_may_not_overtake_an_open_batch(subject: Subject) -> None:
    a, c = subject.file("a"), subject.file("c")
    subject.run(an_entry(0, a))

    with pytest.raises(TableDivergedError):
        subject.run(a_refresh(2, c, where="day = 1"))

    assert subject.rows() == rows_of((a, 1, 1))


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_a_row_outside_of_the_range_is_refused(subject: Subject, mode: str) -> None:
    a, outside = subject.file("a", day=1), subject.file("b", day=2)
    subject.run(an_entry(0, a))

    with pytest.raises(ScopeProviderError):
        subject.run(an_entry(1, outside, mode=mode, where="day = 1", refresh_start=1))

    assert subject.rows() == rows_of((a, 1, 1))
    assert subject.committed() == {0: (0, 1, False)}


# ---- fence ------------------------------------------------------------------------------------------


def test_a_fenced_batch_writes_nothing_any_more(subject: Subject) -> None:
    a, given_up, c = (subject.file(name) for name in "abc")
    subject.run(an_entry(0, a))

    subject.fence(an_entry(1, given_up))
    subject.run(an_entry(1, given_up), an_entry(2, c))

    assert subject.rows() == rows_of((a, 1, 1), (c, 1, 1))
    assert subject.committed() == {0: (0, 1, False), 1: (1, 0, True), 2: (2, 1, False)}


@also("spark runner", "scope runner")
def test_a_fence_reads_no_file(subject: Subject) -> None:
    a, gone = subject.file("a"), subject.file("b")
    subject.remove(gone)
    subject.run(an_entry(0, a))

    subject.fence(an_entry(1, gone))

    assert subject.probe().txn == 1


@pytest.mark.parametrize("where", [None, "day = 1"])
def test_a_fenced_overwrite_removes_what_it_replaces(subject: Subject, where: str | None) -> None:
    """All files since it count as not loaded: rows of before that stayed would be doubled by them."""
    a, b = subject.file("a"), subject.file("b")
    subject.run(an_entry(0, a))

    subject.fence(a_refresh(1, b, where=where))

    assert subject.rows() == Counter()
    version, _, abandoned = subject.committed()[1]
    assert (version, abandoned) == (1, True)


def test_a_batch_that_is_committed_is_not_fenced(subject: Subject) -> None:
    entries = [an_entry(0, subject.file("a")), an_entry(1, subject.file("b"))]
    subject.run(*entries)
    before = subject.probe(), subject.rows()

    subject.fence(entries[1])
    subject.fence(entries[0])

    assert (subject.probe(), subject.rows()) == before


def test_a_fence_may_leave_numbers_out(subject: Subject) -> None:
    subject.run(an_entry(0, subject.file("a")))

    subject.fence(an_entry(2, subject.file("c")))

    assert subject.probe().txn == 2


def test_a_batch_of_a_missing_table_cannot_be_fenced(subject: Subject) -> None:
    with pytest.raises(InputError):
        subject.fence(an_entry(0, subject.file("a")))

    assert subject.probe() == MISSING_TABLE


# ---- probe ------------------------------------------------------------------------------------------


@also("spark runner", "scope runner")
def test_a_table_that_does_not_exist_has_nothing(subject: Subject) -> None:
    assert subject.probe() == MISSING_TABLE
    assert subject.probe(None) == MISSING_TABLE


def test_without_a_pipeline_a_table_has_no_batches_and_says_whether_it_has_rows(subject: Subject) -> None:
    assert not subject.probe(None).has_rows
    subject.run(an_entry(0, subject.file("empty", ids=0)))
    found = subject.probe(None)
    assert (found.version, found.txn, found.committed, found.has_rows) == (0, None, {}, False)
    assert found.identity == subject.probe().identity
    subject.run(an_entry(1, subject.file("a")))
    assert subject.probe(None).has_rows
    assert not subject.probe().has_rows


def test_two_pipelines_share_a_table_and_see_each_their_own_batches(subject: Subject) -> None:
    a, b, c = (subject.file(name) for name in "abc")

    subject.run(an_entry(0, a))
    subject.run(an_entry(0, b), pipeline=OTHER)
    subject.run(an_entry(1, c))

    assert subject.rows() == rows_of((a, 1, 1), (b, 1, 1), (c, 1, 1))
    assert subject.committed() == {0: (0, 1, False), 1: (2, 1, False)}
    assert subject.committed(OTHER) == {0: (1, 1, False)}
    assert (subject.probe().txn, subject.probe(OTHER).txn) == (1, 0)


def test_commits_of_others_are_no_batches(subject: Subject) -> None:
    a, b = subject.file("a"), subject.file("b")
    subject.run(an_entry(0, a))

    for text in ("loaded by hand", "[1]", '{"pipeline": 1, "seq": "x"}', ""):
        subject.foreign_commit(text)
    subject.run(an_entry(1, b))

    assert subject.rows() == rows_of((a, 1, 1), (b, 1, 1)) + Counter({("elsewhere", 7, 7): 4})
    assert subject.committed() == {0: (0, 1, False), 1: (5, 1, False)}


def test_a_restored_table_shows_it_and_what_came_after_the_baseline_and_keeps_its_transactions(
    subject: Subject,
) -> None:
    a, b, c = (subject.file(name) for name in "abc")
    subject.run(an_entry(0, a), an_entry(1, b))
    before = subject.probe()
    subject.world.restore(0)

    found = subject.probe(baseline=Baseline(before.identity, 1))
    subject.run(an_entry(1, b), an_entry(2, c))

    assert before.identity
    assert found.identity
    assert (before.identity.restore_version, before.restores) == (None, ())
    assert (found.identity.table_id, found.identity.restore_version) == (before.identity.table_id, 2)
    assert (found.version, found.txn, found.restores) == (2, 1, (Restored(2, 0),))
    assert subject.rows() == rows_of((a, 1, 1), (c, 1, 1))
    after = subject.probe(baseline=Baseline(found.identity, 2))
    assert (after.identity, after.version, after.txn, after.restores) == (found.identity, 3, 2, ())
    assert {seq: seen(batch) for seq, batch in after.committed.items()} == {2: (3, 1, False)}


def test_a_table_that_was_created_again_has_another_id_and_no_batches(subject: Subject) -> None:
    subject.run(an_entry(0, subject.file("a")), an_entry(1, subject.file("b")))
    before = subject.probe()
    subject.recreate()

    found = subject.probe(baseline=Baseline(before.identity, 1))

    assert before.identity
    assert found.identity
    assert found.identity.table_id != before.identity.table_id
    assert (found.version, found.txn, found.committed, found.restores) == (0, None, {}, ())
