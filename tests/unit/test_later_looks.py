"""A table that is loaded by a cursor, and a run that looked at it before another run loaded more of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.exceptions import CursorError
from airflow_provider_scope.protocol.report import RunReport
from airflow_provider_scope.sources.cursor.source import CursorRows
from airflow_provider_scope.sources.cursor.state import CursorState
from airflow_provider_scope.specs import Cursor, TableSource
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import CursorSlice
from tests.support.values import an_entry

if TYPE_CHECKING:
    from pathlib import Path

LOG: Any = SimpleNamespace(location="file:///checkpoint")


@pytest.mark.parametrize(("loaded", "is_there"), [(1, True), (2, False)])
def test_a_version_that_another_run_loaded_meanwhile_is_no_other_table(
    tmp_path: Path, loaded: int, is_there: bool
) -> None:
    table = str(tmp_path / "source")
    write_deltalake(table, pa.table({"id": [1]}))
    spec = TableSource(table=f"file://{table}", cursor=Cursor(column="id"))
    source = CursorRows(spec=spec, log=LOG, storage=LocalStorage())
    view: Any = SimpleNamespace(next_seq=0, state=None)
    source.discover(None, view, RunReport(roots=(), now_ms=0))  # type: ignore[arg-type]
    write_deltalake(table, pa.table({"id": [2]}), mode="append")
    of = str(DeltaTable(table).metadata().id)
    view.state = CursorState(column="id", kind="bigint", last="2", source=of, version=loaded).encode()

    if is_there:
        assert source.pending(view, RunReport(roots=(), now_ms=0), refresh=False).cut() is None
    else:
        with pytest.raises(CursorError, match="is not the one that was loaded before"):
            source.pending(view, RunReport(roots=(), now_ms=0), refresh=False)


def test_a_table_that_had_a_name_in_a_catalog_is_read_on_by_its_folder(tmp_path: Path) -> None:
    table = str(tmp_path / "source")
    write_deltalake(table, pa.table({"id": [1, 2]}))
    spec = TableSource(table=f"file://{table}", cursor=Cursor(column="id"))
    source = CursorRows(spec=spec, log=LOG, storage=LocalStorage())
    state = CursorState(column="id", kind="bigint", last="1").encode()
    view: Any = SimpleNamespace(next_seq=0, state=state, overwrite_start=None)
    report = RunReport(roots=(), now_ms=0)
    source.discover(None, view, report)  # type: ignore[arg-type]
    batch = source.pending(view, report, refresh=False).cut()

    assert batch
    assert (batch.before, batch.version) == (state, 0)


@pytest.mark.parametrize(("of", "words"), [("another id", "another id"), (None, "one that a catalog names")])
def test_an_open_batch_of_another_table_says_nothing_of_a_table_that_was_dropped(
    tmp_path: Path, of: str | None, words: str
) -> None:
    table = str(tmp_path / "source")
    write_deltalake(table, pa.table({"id": [1]}))
    spec = TableSource(table=f"file://{table}", cursor=Cursor(column="id"))
    source = CursorRows(spec=spec, log=LOG, storage=LocalStorage())
    view: Any = SimpleNamespace(next_seq=1)
    source.discover(None, view, RunReport(roots=(), now_ms=0))  # type: ignore[arg-type]
    with pytest.raises(CursorError, match=f"is not the one of the batch.* of {words}") as caught:
        source.state_after(an_entry(0, slice=CursorSlice(None, "id", None, None, of, 0)))

    assert caught.value.do.startswith("name the table of before in the source, or bring it back if")
