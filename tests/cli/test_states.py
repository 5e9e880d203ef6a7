"""What the commands say and do where batches build on each other: a table that is loaded by a cursor."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.protocol.records import encode_offset
from airflow_provider_scope.session import _Rows
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.sources.cursor.state import CursorState, decode
from airflow_provider_scope.specs import Cursor, TableSource
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import Window
from tests.crash.world import DeltaWorld
from tests.support.delta_engine import SOURCE, TABLE, DeltaEngine, local
from tests.support.faulty_storage import open_gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.report import RunReport


class CursorEngine(DeltaEngine):
    """Reads a version of a Delta table beyond the last id, and writes boundary rows."""

    def __init__(self, gate: Any, source: str, checkpoint: str) -> None:
        super().__init__(gate)
        self.source = source
        self.checkpoint = checkpoint

    def read(self, entry: OffsetEntry) -> pa.Table:
        rows = DeltaTable(local(self.source), version=entry.slice.version).to_pyarrow_table()
        before = decode(entry.slice.before, "test")
        last = int(before.last) if before and before.last else -1
        new = sorted((row["id"], row["day"]) for row in rows.to_pylist() if row["id"] > last)
        ids, days = zip(*new, strict=True) if new else ((), ())
        return pa.table({"id": ids, "day": days, "file": [self.source] * len(ids)}, schema=TABLE)

    def notes(self, entry: OffsetEntry, rows: pa.Table) -> dict[str, Any]:
        folder = f"{self.checkpoint}/boundary/{entry.seq}-of-it"
        path = Path(local(folder))
        path.mkdir(parents=True, exist_ok=True)
        (path / "part-0.parquet").write_bytes(b"rows")
        last = max(rows["id"].to_pylist())
        state = CursorState(
            column="id",
            kind="bigint",
            last=str(last),
            boundary_folder=folder,
            source=entry.slice.source,
            version=entry.slice.version,
        )
        return {"state": state.encode()}


class CursorWorld(DeltaWorld):
    @property
    def orders(self) -> str:
        return f"file://{self.folder}/orders"

    def engine(self, gate: Any) -> CursorEngine:
        return CursorEngine(gate, self.orders, self.checkpoint)

    def source(self, log: Any, spec: Any) -> CursorRows:
        spec = TableSource(table=self.orders, cursor=Cursor(column="id"))
        return CursorRows(spec=spec, log=log, window=self.window, storage=LocalStorage())

    def order(self, *ids: int) -> None:
        rows = pa.table({"id": ids, "day": [1] * len(ids)}, schema=SOURCE)
        write_deltalake(local(self.orders), rows, mode="append")

    def ids(self) -> list[int]:
        return sorted(number for _, number, _ in self.rows().elements())


@pytest.fixture
def desk(desk: Any) -> Any:
    desk.world = CursorWorld(desk.world.folder)
    return desk


def loaded(world: CursorWorld, batches: int) -> None:
    for number in range(batches):
        world.order(number)
        world.run()


def test_status_shows_the_state_in_a_line(desk):
    loaded(desk.world, 2)

    said = desk.table_command("status")

    assert (said.code, said.err) == (0, "")
    assert "state       id up to 1, version 1 of the source\n" in said.out
    assert "committed   batch 1: 1 row, version 1; " in said.out
    assert "watermark" not in said.out
    assert said.out.endswith(
        "the next run looks for new rows\n"
        "            (the source was not looked at: `airflow scope plan DAG TASK` does that)\n"
    )


def test_a_restored_table_goes_on_at_the_state_of_its_rows(desk):
    loaded(desk.world, 3)
    desk.world.restore(0)

    said = desk.table_command("accept-table")

    assert said.code == 0
    assert said.out.split("as it is means:\n")[1] == (
        "- the rows of batches 1 to 2 are no longer in the table\n"
        "- the next batch begins at the state of the table's rows: id up to 0, version 0 of the source\n"
        "- an empty transaction in the table closes the numbers of the batches up to now\n"
        "nothing was written; add --yes to do it\n"
    )
    assert desk.table_command("accept-table", "--yes").code == 0
    desk.world.run()
    assert desk.world.ids() == [0, 1, 2]
    assert "there is nothing to accept" in desk.table_command("accept-table").out


def test_an_interval_of_a_cursor_says_how_its_rows_come_back(desk):
    first, second = (desk.world.of(Window(start, start + 1)) for start in (0, 1))
    for number, world in enumerate((first, second)):
        world.order(number)
        world.run()
    second.restore(0)

    said = desk.table_command("accept-table", "--interval", second.window.name, "--yes")

    folder = f"file:///table/_checkpoint/intervals/{second.window.name}"
    assert said.out.split("as it is means:\n")[1].startswith(
        "- the rows of batch 0 are no longer in the table\n"
        '- with write="append", the interval counts as loaded\n'
        "- to get these rows back, delete what the table still holds of the interval's rows, move the folder "
        f"{folder} away while nothing runs, and clear the interval's run\n"
    )
    assert all(batch.record.abandoned for batch in second.run().batches)
    assert second.ids() == [0]
    Path(local(second.checkpoint)).rename(desk.world.folder / "away")
    second.run()
    assert {0, 1} == set(second.ids())


def test_a_table_without_a_known_state_needs_a_full_refresh(desk, dag_file):
    loaded(desk.world, 2)
    desk.world.order(2)

    def restore_once() -> None:
        if desk.world.version() == 1:
            desk.world.restore(0)

    desk.fails("commit 2", restore_once)  # its second try commits, after the RESTORE

    refused = desk.table_command("accept-table")
    said = desk.table_command("accept-table", "--reload-undecidable", "--yes")

    assert (refused.code, "without the batch knowing of it" in refused.err) == (1, True)
    assert "only a run with full_refresh=True can go on" in said.out
    desk.fails("", lambda: None)
    status = desk.table_command("status").out
    assert "state       not known; only a run with full_refresh=True can go on\n" in status
    assert status.splitlines()[-1] == "what next   the next run is refused: see `state`"
    assert desk.listed()[0]["error"].startswith("StateUnknownError: It is not known what of the source is in")
    desk.world.run(refresh=True)
    assert desk.world.ids() == [0, 1, 2]


def test_an_open_batch_that_is_given_up_begins_again(desk):
    loaded(desk.world, 1)
    desk.world.order(1)

    def dies() -> None:
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        desk.fails("files 1", dies)
    shown = desk.table_command("status")
    said = desk.table_command("abandon", "1", "--yes")

    assert "            1: append: id from the last value on, version 1 of the source\n" in shown.out
    assert said.out == "batch 1 is abandoned; the next run begins where it began\n"
    desk.world.run()
    assert desk.world.ids() == [0, 1]


def test_a_range_that_is_given_up_is_loaded_only_by_a_run_of_the_same_range(desk):
    world = desk.world = desk.world.of(Window(0, 1))
    world.order(0)

    def dies() -> None:
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        desk.fails("files 0", dies)
    words = ("abandon", "0", "--interval", world.window.name)
    shown = desk.table_command(*words)
    said = desk.table_command(*words, "--yes")

    assert shown.out.splitlines()[-2:] == [
        "only a run of the same range loads its rows",
        "nothing was written; add --yes to do it",
    ]
    assert said.out == "batch 0 is abandoned; only a run of the same range loads its rows\n"
    world.run()
    assert world.ids() == [0]


class LoadEngine(DeltaEngine):
    def read(self, entry: OffsetEntry) -> pa.Table:
        return pa.table({"id": [entry.seq], "day": [1], "file": ["none"]}, schema=TABLE)


class LoadWorld(DeltaWorld):
    """What ``spark.load`` leaves."""

    def engine(self, gate: Any) -> LoadEngine:
        return LoadEngine(gate)

    def source(self, log: Any, spec: Any) -> _Rows:
        return _Rows("a-load")

    def run(self, gate: Any = open_gate, **asked: Any) -> RunReport:
        return super().run(gate, max_batches=1, **asked)


def test_rows_that_only_their_caller_has_are_not_said_to_come_again_or_to_be_files(desk):
    world = desk.world = LoadWorld(desk.world.folder)
    world.run()
    world.run()

    def dies() -> None:
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        desk.fails("commit 2", dies)
    status = desk.table_command("status")
    shown = desk.table_command("abandon", "2")
    abandoned = desk.table_command("abandon", "2", "--yes")
    world.restore(0)
    accepted = desk.table_command("accept-table", "--yes")

    fits = "what next   the table and the log fit together; the next load"
    assert (
        status.out.splitlines()[-1] == f"{fits} abandons the open batches, whose rows only their callers have"
    )
    can_load = "only the caller of its load has its rows, and can load them again"
    assert shown.out.splitlines()[-2] == can_load
    assert abandoned.out == f"batch 2 is abandoned; {can_load}\n"
    lost = "- the rows of batch 1 are no longer in the table; whoever has them can load them again"
    assert accepted.out.splitlines()[2:4] == [lost, "- the state is that of the table's rows"]
    assert desk.table_command("status").out.splitlines()[-1] == f"{fits} writes what it is given"


def test_a_vacuum_keeps_the_state_and_the_boundary_rows_that_it_names(desk):
    loaded(desk.world, 14)
    world = desk.world
    stray = Path(local(world.checkpoint), "boundary", "14-of-an-open-batch")
    stray.mkdir()
    (stray / "part-0.parquet").write_bytes(b"rows")

    said = desk.table_command("vacuum", "--retain-batches", "10", "--yes")

    assert said.code == 0, said.err
    folders = {path.name for path in stray.parent.iterdir() if any(path.iterdir())}
    # The oldest entry that stays begins at the state after batch 3.
    assert folders == {*(f"{seq}-of-it" for seq in range(3, 14)), stray.name}
    assert world.storage.names(f"{world.checkpoint}/commits")[0] == f"{4:020}"
    world.order(14)
    world.run()
    assert world.ids() == [*range(15)]
    assert desk.table_command("rebuild", "--yes").code == 0


def test_a_vacuum_keeps_the_record_of_a_range_which_no_state_tells(desk):
    loaded(desk.world, 14)
    world = desk.world
    entry = world.log().offset(2)
    a_range = replace(entry, slice=replace(entry.slice, end="number:3"))
    Path(local(world.checkpoint), "offsets", f"{2:020}").write_bytes(encode_offset(a_range))

    said = desk.table_command("vacuum", "--retain-batches", "10", "--yes")

    assert said.code == 0, said.err
    assert "; no segment in seen/ and no state says what these batches loaded\n" in said.out
    for kind in ("offsets", "commits"):
        assert world.storage.names(f"{world.checkpoint}/{kind}")[0] == f"{2:020}"


@pytest.fixture
def dag_file(desk: Any, in_dags: Callable[[str, str], Path]) -> None:
    text = f"""\
from airflow.sdk import DAG
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import Cursor, TableSource

with DAG("by_cursor", schedule=None) as dag:
    DeltaIncrementalIngestOperator(
        task_id="ingest",
        delta_location="{desk.world.folder}/table",
        source=TableSource(table="{desk.world.folder}/orders", cursor=Cursor(column="id")),
    )
"""
    in_dags("by_cursor.py", text)


def test_list_says_that_a_source_which_was_created_again_is_refused(desk, dag_file):
    loaded(desk.world, 1)
    assert desk.listed()[0]["state"] == "committed"
    shutil.rmtree(local(desk.world.orders))
    desk.world.order(0)

    (row,) = desk.listed()

    with pytest.raises(CursorError) as ran:
        desk.world.run()
    assert (row["state"], row["committed"][:7]) == ("refused", "batch 0")
    assert row["error"] == f"CursorError: {ran.value.what}".replace(str(desk.world.folder), "")


def test_list_does_not_say_that_a_source_which_could_not_be_read_is_refused(desk, dag_file):
    loaded(desk.world, 1)
    desk.world.order(1)
    Path(local(desk.world.orders), "_delta_log", f"{1:020}.json").write_text("{")

    (row,) = desk.listed()

    assert (row["state"], row["committed"][:7]) == ("unknown", "batch 0")
    assert row["error"].startswith("TableUnreadableError: ")


def test_a_plan_shows_the_next_slice_without_spark(desk, dag_file):
    loaded(desk.world, 1)
    desk.world.order(1)

    said = desk.reads("plan", "by_cursor", "ingest")

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "new: 1 batch\n  1: append: id from the last value on, version 1 of the source\n"
        "whether more batches follow, only the rows of the last one tell\nnothing was written\n"
    )
