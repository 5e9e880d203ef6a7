"""The table that shows the batches of a change data feed to people."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.delta.log import open_table
from airflow_provider_scope.engines import assembly
from airflow_provider_scope.engines.places import check_literal_places, check_places
from airflow_provider_scope.exceptions import InputError, SparkJobFailedError, StorageError
from airflow_provider_scope.sources.feed.metadata import (
    SCHEMA,
    first_unknown,
    read_rows,
    write_rows,
)
from airflow_provider_scope.specs import CdfSource
from airflow_provider_scope.specs.ingest import ingest_from
from airflow_provider_scope.stores.local import LocalStorage
from tests.support.change_world import ChangeWorld
from tests.support.cloe_nessy import METADATA
from tests.support.delta_engine import local
from tests.support.storages import BACKENDS, TOY, Backend
from tests.support.values import arguments

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_800_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> ChangeWorld:
    """Three versions in two batches, and the third batch not there yet."""
    source = ChangeWorld(tmp_path)
    source.has_metadata, source.now_ms = True, NOW_MS
    for number in range(3):
        source.order(number, number + 10)
    source.run()
    return source


def table(world: ChangeWorld) -> pa.Table:
    """Read it by pyarrow."""
    rows = DeltaTable(local(world.metadata)).to_pyarrow_table()
    assert rows.schema.equals(SCHEMA)
    return rows.sort_by("batch")


def told(world: ChangeWorld, *names: str) -> list[tuple[Any, ...]]:
    rows = table(world).select(["batch", *names])
    return [tuple(row.values()) for row in rows.to_pylist()]


def version(world: ChangeWorld) -> int:
    return DeltaTable(local(world.metadata)).version()


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def test_each_batch_is_a_row_with_cloe_nessys_names_and_types(world: ChangeWorld) -> None:
    pipeline = world.log().pipeline()
    assert pipeline is not None
    times = [at(world.committed_ms(number)) for number in range(3)]
    shared = {
        "delta_load_identifier": "default",
        "source_table_identifier": world.orders,
        "is_processed": True,
        "is_stale": False,
        "__DCR": at(NOW_MS),
        "__DMR": at(NOW_MS),
    }

    assert table(world).to_pylist() == [
        {
            **shared,
            "BK": f"{pipeline.pipeline}/0",
            "last_read_timestamp": times[1],
            "rows": 4,
            "start_commit_version": 0,
            "end_commit_version": 1,
            "start_commit_timestamp_utc": times[0],
            "end_commit_timestamp_utc": times[1],
            "batch": 0,
        },
        {
            **shared,
            "BK": f"{pipeline.pipeline}/1",
            "last_read_timestamp": times[2],
            "rows": 2,
            "start_commit_version": 2,
            "end_commit_version": 2,
            "start_commit_timestamp_utc": times[2],
            "end_commit_timestamp_utc": times[2],
            "batch": 1,
        },
    ]
    assert [(f.name, f.type) for f in METADATA] == [(f.name, f.type) for f in SCHEMA][:-1]


def test_it_is_written_in_one_commit_by_runs_that_commit_a_batch_and_by_no_other(world: ChangeWorld) -> None:
    assert version(world) == 0
    report = world.run()
    assert (report.batches, version(world)) == ([], 0)
    resumed = world.run(first_batch=0)  # its report has batches that are in the table already
    assert (len(resumed.batches), version(world)) == (2, 0)
    world.order(3)
    world.run()

    assert version(world) == 1
    assert told(world, "end_commit_version") == [(0, 1), (1, 2), (2, 3)]


def test_batches_of_before_a_full_refresh_are_stale(world: ChangeWorld) -> None:
    world.run(refresh=True)

    assert told(world, "is_processed", "is_stale", "start_commit_version") == [
        (0, True, True, 0),
        (1, True, True, 2),
        (2, True, False, 0),
        (3, True, False, 2),
    ]


def test_a_batch_that_is_given_up_is_stale_and_takes_no_other_with_it(world: ChangeWorld) -> None:
    world.order(3)
    world.fails_at = 2
    with pytest.raises(SparkJobFailedError):
        world.run()
    world.abandon(2)
    world.fails_at = -1
    world.run()

    assert told(world, "is_processed", "is_stale", "end_commit_version", "rows") == [
        (0, True, False, 1, 4),
        (1, True, False, 2, 2),
        (2, False, True, 3, None),
        (3, True, False, 3, 1),
    ]


def test_batches_whose_rows_a_restore_took_are_stale(world: ChangeWorld) -> None:
    world.restore(0)
    world.accept()
    world.order(3)
    world.run()

    assert told(world, "is_processed", "is_stale", "end_commit_version") == [
        (0, True, False, 1),
        (1, True, True, 2),
        (2, False, True, 2),
        (3, True, False, 3),
    ]
    assert sorted(number for _, number, _ in world.rows().elements()) == [0, 1, 2, 3, 10, 11, 12]


def test_rows_of_purged_batches_stay(world: ChangeWorld) -> None:
    for number in range(3, 12):
        world.order(number)
        world.run()
    before = table(world)
    world.vacuum(retain=1)
    assert world.storage.names(f"{world.checkpoint}/offsets") == [f"{10:020}"]
    world.order(12)
    world.run()

    assert table(world).slice(0, 11).equals(before)
    assert table(world).num_rows == 12
    world.run(refresh=True)
    assert [stale for _, stale in told(world, "is_stale")] == [True] * 12 + [False] * 7


def test_it_is_made_anew_where_it_is_gone(world: ChangeWorld) -> None:
    before = table(world)
    for path in sorted((world.folder / "metadata").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    world.order(3)
    world.run()

    assert table(world).slice(0, 2).equals(before)
    assert table(world).num_rows == 3


@pytest.mark.parametrize("state", ["a table of others", "of another pipeline", "no folder", "damaged"])
def test_that_it_cannot_be_written_is_a_warning_and_the_load_is_done(world: ChangeWorld, state: str) -> None:
    folder = world.folder / "metadata"
    if state != "damaged":
        folder.rename(world.folder / "aside")
    if state == "a table of others":
        write_deltalake(folder, METADATA.empty_table())
    elif state == "of another pipeline":
        rows = read_rows(f"file://{world.folder}/aside", world.storage, _pipeline(world))
        write_rows(world.metadata, world.storage, "another", rows)
    elif state == "no folder":
        folder.write_text("a file")
    else:
        next(folder.glob("*.parquet")).write_bytes(b"no parquet")
    before = None if state == "no folder" else version(world)
    world.order(3)

    report = world.run()

    assert len(report.batches) == 1
    assert len(list(world.rows().elements())) == 7
    assert f"warning: the metadata table {world.metadata} was not written: " in report.text()
    assert before == (None if state == "no folder" else version(world))
    assert world.run().warnings == {}


def _pipeline(world: ChangeWorld) -> str:
    record = world.log().pipeline()
    assert record is not None
    return record.pipeline


LAST = at(1_700_000_000_123)
ROW = {
    "BK": "p/0",
    "delta_load_identifier": "é",
    "source_table_identifier": "file:///orders",
    "is_processed": True,
    "is_stale": False,
    "last_read_timestamp": LAST,
    "rows": None,
    "start_commit_version": 0,
    "end_commit_version": 2**31 - 1,
    "start_commit_timestamp_utc": None,
    "end_commit_timestamp_utc": LAST,
    "__DCR": at(1_700_000_000_999),
    "__DMR": at(1_700_000_000_999),
    "batch": 0,
}


@pytest.mark.parametrize("backend", [backend.param for backend in BACKENDS])
def test_it_is_written_on_every_store_and_read_back(backend: Backend, tmp_path: Path) -> None:
    second = ROW | {"batch": 1, "start_commit_version": 5, "rows": 7}
    with backend.make(tmp_path) as place:
        location = place.at("metadata")
        assert read_rows(location, place.storage, "p") == []
        write_rows(location, place.storage, "p", [ROW])
        write_rows(location, place.storage, "p", [ROW, second])

        assert read_rows(location, place.storage, "p") == [ROW, second]
        with open_table(location, place.storage) as table:
            assert table is not None
            assert table.delta.version() == 1
            (name,) = pa.table(table.delta.get_add_actions(flatten=True))["path"].to_pylist()
        data = place.storage.read(f"{location}/{name}")
        assert data is not None
        rows = pq.read_table(io.BytesIO(data))
        assert rows["end_commit_timestamp_utc"].to_pylist() == [at(1_700_000_000_123)] * 2
        assert rows["rows"].to_pylist() == [None, 7]
        assert rows["delta_load_identifier"].to_pylist() == ["é", "é"]
        with pytest.raises(InputError, match="belongs to the pipeline p"):
            write_rows(location, place.storage, "other", [])


def test_a_commit_of_somebody_else_is_never_replaced(tmp_path: Path) -> None:
    with TOY.make(tmp_path) as place:
        location = place.at("metadata")
        write_rows(location, place.storage, "p", [ROW])

        class Late:
            """Lets another writer be faster."""

            def __getattr__(self, name: str) -> Any:
                return getattr(place.storage, name)

            def put_if_absent(self, path: str, data: bytes) -> bytes:
                write_rows(location, place.storage, "p", [ROW | {"rows": 1}])
                return place.storage.put_if_absent(path, data)

        with pytest.raises(StorageError, match="was written by somebody else in the meantime"):
            write_rows(location, Late(), "p", [ROW | {"rows": 2}])
        assert read_rows(location, place.storage, "p") == [ROW | {"rows": 1}]


def test_the_log_is_asked_from_the_first_row_on_that_may_change() -> None:
    done, waiting = ROW, ROW | {"batch": 1, "is_processed": False}

    assert first_unknown([]) == 0
    assert first_unknown([done]) == 1
    assert first_unknown([done, waiting, ROW | {"batch": 2}]) == 1


def ingest(**source: Any) -> Any:
    target = source.pop("target", "/data/target")
    spec = CdfSource(**{"table": "/data/source", **source})
    return ingest_from(arguments(delta_location=target, source=spec))


@pytest.mark.parametrize(
    "location",
    [
        "/data/source",
        "/data/source/",
        "file:///data/target",
        "/data/target/_checkpoint",
        "/data/target/people",
        "/data/source/_metadata",
        "/data",
    ],
)
def test_a_folder_of_source_target_or_checkpoint_is_refused(location: str) -> None:
    with pytest.raises(InputError, match=r"is .*, inside it, or contains it"):
        check_literal_places(ingest(metadata_location=location))
    check_literal_places(ingest(metadata_location="/data/source_metadata"))


def test_a_link_to_the_source_is_refused_when_the_task_runs(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "source")
    task = ingest(
        table=f"{tmp_path}/source", target=f"{tmp_path}/target", metadata_location=f"{tmp_path}/link"
    )
    with pytest.raises(InputError, match="inside it, or contains it"):
        check_places(task)


@pytest.mark.parametrize("value", ["", 7, "relative/folder"])
def test_a_location_is_an_absolute_path_or_a_uri(value: Any) -> None:
    with pytest.raises(InputError):
        check_literal_places(ingest(metadata_location=value))


@pytest.mark.parametrize("has_metadata", [True, False])
def test_the_source_of_a_task_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_metadata: bool
) -> None:
    world = ChangeWorld(tmp_path)
    world.order(1)
    engine = world.engine(lambda call, do, torn=None: do())
    monkeypatch.setattr(assembly, "spark_engine", lambda *_, **__: engine)
    location = {"metadata_location": local(world.metadata)} if has_metadata else {}
    task = ingest(table=local(world.orders), target=local(world.table), **location)
    context = assembly.RunContext(task="d.t", log_file=tmp_path / "log", report=lambda _: None)

    execution, request, _ = assembly.assemble(task, context)
    execution.run(request)

    assert (world.folder / "metadata").exists() == has_metadata
    if has_metadata:
        assert told(world, "end_commit_version", "rows") == [(0, 0, 1)]


def test_a_folder_with_a_percent_sign_is_that_folder(tmp_path: Path) -> None:
    location, storage = f"file://{tmp_path}/a%20b", LocalStorage()
    write_rows(location, storage, "p", [ROW])
    write_rows(location, storage, "p", [ROW, ROW | {"batch": 1}])

    assert read_rows(location, storage, "p") == [ROW, ROW | {"batch": 1}]
    assert [path.name for path in tmp_path.iterdir()] == ["a%20b"]
