"""Which versions of a change data feed are read, which are refused, and when a feed may be lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.delta.commit import DeltaCommit
from airflow_provider_scope.delta.schema import Field, Struct, of_delta
from airflow_provider_scope.exceptions import (
    ChangeFeedError,
    CheckpointCorruptError,
    InputError,
    TableUnreadableError,
)
from airflow_provider_scope.protocol.report import XCOM_LIMIT_BYTES, RunReport
from airflow_provider_scope.sources.feed import state as feed_state
from airflow_provider_scope.sources.feed.source import ChangeRows, SourceLog, check_partitions
from airflow_provider_scope.sources.feed.state import ChangeState, Metadata, SourceCommit
from airflow_provider_scope.specs import CdfSource, ScopeEngine
from airflow_provider_scope.specs.ingest import ingest_from, source_from
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.values import VersionSlice
from tests.support.values import arguments

if TYPE_CHECKING:
    from pathlib import Path


def struct(*columns: tuple[str, Any]) -> dict[str, Any]:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    return {"type": "struct", "fields": fields}


def schema(*columns: tuple[str, Any]) -> Struct:
    return of_delta(struct(*columns))


ON = Metadata(table="t", has_feed=True, is_mapped=False, schema=schema(("id", "integer")))
OFF = replace(ON, has_feed=False)
MAPPED = replace(ON, is_mapped=True)


def commits(*operations: Any, first: int = 0) -> list[SourceCommit]:
    """Return versions: each an operation, metadata, both, or None."""
    versions = []
    for version, change in enumerate(operations, first):
        operation, metadata = change if isinstance(change, tuple) else (change, None)
        if isinstance(operation, Metadata):
            operation, metadata = "SET TBLPROPERTIES", operation
        versions.append(SourceCommit(version=version, operation=operation or "WRITE", metadata=metadata))
    return versions


CREATE = "CREATE TABLE"


@pytest.mark.parametrize(
    ("operations", "first", "expected"),
    [
        ([(CREATE, ON), None, None], 0, 0),
        ([(CREATE, OFF), None, ON, None], 0, 2),
        ([(CREATE, ON), None, ON, None], 0, 0),  # set again: it was set
        ([(CREATE, ON), OFF, None, ON, None], 0, 3),
        ([(CREATE, ON), None, "TRUNCATE", None], 0, 2),
        ([(CREATE, OFF), "TRUNCATE", ON], 0, 2),
        ([(CREATE, ON), None, ("CREATE OR REPLACE TABLE AS SELECT", ON)], 0, 2),
        ([("WRITE", ON), None], 0, 0),
        ([None, "TRUNCATE", None], 5, 6),
        ([None, None], 5, None),
        ([None, ON, None], 5, None),  # whether it was set before is not known
        ([None, OFF, ON], 5, 7),
    ],
)
def test_a_first_load_begins_where_the_table_was_made_emptied_or_enabled_last(
    operations: list[Any], first: int, expected: int | None
) -> None:
    assert feed_state.feed_start(commits(*operations, first=first), ON).first == expected


@pytest.mark.parametrize(
    ("parameters", "has_metadata", "begins"),
    [
        ({"isV1SaveAsTableOverwrite": True, "isManaged": "false"}, False, True),
        ({"isV1SaveAsTableOverwrite": True, "isDynamicPartitionOverwrite": True}, False, False),
        ({"isV1SaveAsTableOverwrite": True, "isDynamicPartitionOverwrite": True}, True, False),  # mergeSchema
        ({"isDynamicPartitionOverwrite": "true"}, False, False),
        ({"isDynamicPartitionOverwrite": True}, True, True),  # REPLACE TABLE in a session of that mode
        (None, True, True),
    ],
)
def test_a_table_of_which_some_partitions_were_replaced_has_its_other_rows(
    parameters: Any, has_metadata: bool, begins: bool
) -> None:
    info = {"operation": "CREATE OR REPLACE TABLE AS SELECT", "operationParameters": parameters}
    actions = [{"commitInfo": info}, *([metadata(struct(("id", "integer")))] if has_metadata else [])]
    assert SourceCommit.of(DeltaCommit(2, actions)).begins == begins


def test_the_first_readable_version_is_where_the_feed_was_enabled_last() -> None:
    assert feed_state.feed_start(commits((CREATE, OFF), ON, "TRUNCATE", ON), ON).enabled == 1
    assert feed_state.feed_start(commits(None, "TRUNCATE", first=4), ON).enabled is None


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([None, "RESTORE"], "Version 1 of src is a RESTORE"),
        ([None, OFF, ON], "was off from version 1 on"),
        ([None, replace(ON, table="other")], "its id is other, and was t"),
    ],
)
def test_a_range_without_all_changes_is_refused(operations: list[Any], words: str) -> None:
    with pytest.raises(ChangeFeedError, match=words):
        feed_state.check_range("src", commits(*operations), "t")
    feed_state.check_range("src", commits(None, ON, "OPTIMIZE"), "t")


def test_a_first_load_is_not_told_to_replace_what_it_has_not_loaded() -> None:
    with pytest.raises(ChangeFeedError, match="the first load would begin before it") as caught:
        feed_state.check_range("src", commits(None, "RESTORE"), "t", is_first=True)
    assert "full_refresh" not in str(caught.value)


def test_a_column_that_lost_its_name_is_found_inside_of_others_too() -> None:
    def named(**names: str) -> Metadata:
        inner = [field(2, names["inner"], "integer")]
        rows = {"type": "array", "elementType": {"type": "struct", "fields": inner}}
        fields = [field(1, names["outer"], "string"), field(3, "rows", rows)]
        return replace(MAPPED, schema=of_delta({"fields": fields}))

    def field(number: int, name: str, kind: Any) -> dict[str, Any]:
        return {"name": name, "type": kind, "metadata": {"delta.columnMapping.id": number}}

    before = named(outer="v w", inner="x")
    for now, said in (
        ({"outer": "w", "inner": "x"}, "'v w' to 'w'"),
        ({"outer": "V W", "inner": "y"}, r"'rows\.x' to 'rows\.y'"),
    ):
        with pytest.raises(ChangeFeedError, match=said):
            feed_state.check_names("src", before, SourceCommit(version=1, metadata=named(**now)))
    feed_state.check_names("src", before, SourceCommit(version=1, metadata=named(outer="V w", inner="X")))
    without = replace(MAPPED, schema=of_delta({"fields": [field(1, "v w", "string")]}))
    with pytest.raises(ChangeFeedError, match="drops the column 'rows'"):
        feed_state.check_names("src", before, SourceCommit(version=1, metadata=without))
    feed_state.check_names("src", without, SourceCommit(version=1, metadata=before))
    feed_state.check_names("src", None, SourceCommit(version=1, metadata=before))
    unmapped = replace(ON, schema=schema(("v w", "string")))
    feed_state.check_names("src", before, SourceCommit(version=1, metadata=unmapped))


def test_a_name_that_stands_for_another_column_is_found_over_several_versions() -> None:
    def named(*columns: tuple[int, str]) -> Metadata:
        fields = [
            {"name": name, "type": "integer", "metadata": {"delta.columnMapping.id": number}}
            for number, name in columns
        ]
        return replace(MAPPED, schema=of_delta({"fields": fields}))

    before = named((1, "id"), (2, "a"), (3, "b"))
    unmapped = replace(ON, schema=schema(("id", "integer"), ("a", "integer")))
    for now in (named((1, "id"), (4, "A"), (3, "b")), named((1, "id"), (3, "a"), (2, "b"))):
        for operations in ([None, now], [now, unmapped]):
            with pytest.raises(ChangeFeedError, match="The name 'a' now stands for another column of src"):
                feed_state.check_reused("src", before, commits(*operations))
    for now in (named((1, "id"), (3, "b")), named((3, "B"), (2, "c"), (1, "id"), (7, "d")), unmapped):
        feed_state.check_reused("src", before, commits(now))
    feed_state.check_reused("src", None, commits(before))


def sized(*sizes: int) -> list[SourceCommit]:
    return [SourceCommit(version=n, size_bytes=size) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "most", "size", "expected"),
    [
        ([1, 1, 1], None, None, 3),
        ([1, 1, 1], 2, None, 2),
        ([5, 5, 5], None, 10, 2),
        ([5, 5, 5], None, 9, 1),
        ([50, 5], None, 9, 1),  # a version stays whole
        ([0, 0, 50, 5], None, 9, 2),
        ([1, 1, 1], 2, 1, 1),
    ],
)
def test_a_batch_has_so_many_versions(
    sizes: list[int], most: int | None, size: int | None, expected: int
) -> None:
    assert feed_state.cut("src", sized(*sizes), ON, max_commits=most, max_bytes=size) == expected


def cut(before: Metadata | None, *operations: Any) -> int:
    return feed_state.cut("src", commits(*operations), before, max_commits=None, max_bytes=None)


WIDER = replace(ON, schema=schema(("ID", "integer"), ("v", "string")))
OTHER = replace(ON, schema=schema(("id", "long")))


def test_columns_that_are_added_are_read_together() -> None:
    assert cut(ON, None, WIDER, None) == 3
    assert cut(None, OTHER, None) == 2  # what was before is not known: Spark tells
    inner = struct(("a", "integer"))
    both = struct(("a", "integer"), ("b", "integer"))
    old = replace(ON, schema=schema(("s", {"type": "array", "elementType": inner})))
    new = replace(ON, schema=schema(("s", {"type": "array", "elementType": both})))
    assert cut(old, new) == 1
    with pytest.raises(ChangeFeedError):
        cut(new, old)


def test_other_columns_are_refused_and_read_in_parts_where_columns_are_mapped() -> None:
    with pytest.raises(ChangeFeedError, match="1 of src changes the type of 'id' from int to bigint: the"):
        cut(ON, None, OTHER, None)
    inside = [{"type": "array", "elementType": struct(("x", kind))} for kind in ("date", "string")]
    old, new = (replace(ON, schema=schema(("rows", column))) for column in inside)
    with pytest.raises(ChangeFeedError, match=r"changes the type of 'rows\.x' from date to string"):
        cut(old, new)
    with pytest.raises(ChangeFeedError, match="Version 0 of src drops or renames the column 'v'") as caught:
        feed_state.cut("src", commits(ON), WIDER, max_commits=None, max_bytes=None, is_first=True)
    assert "full_load=True" in str(caught.value)
    assert "start_version" not in str(caught.value)  # the load would begin at that version again
    with pytest.raises(ChangeFeedError, match="or start_version=1") as caught:
        feed_state.cut("src", commits(None, OTHER), ON, max_commits=None, max_bytes=None, is_first=True)
    assert "full_refresh" not in str(caught.value)
    assert cut(ON, OTHER, None) == 2  # all of it is read with the wider type
    mapped = replace(OTHER, is_mapped=True)
    assert cut(MAPPED, None, None, mapped, None) == 2
    assert cut(MAPPED, mapped, None) == 2
    assert cut(MAPPED, None, ON, None) == 1  # nothing is read across the end of a mapping
    assert cut(MAPPED, ON, None) == 2


def test_other_partitions_are_refused_and_a_new_name_of_one_is_not() -> None:
    def by(name: str, number: int | None = None) -> Metadata:
        return replace(MAPPED, schema=Struct((Field(name, "int", number=number),)), partitions=(name,))

    for before in (ON, MAPPED):
        by_id = replace(before, partitions=("id",))
        with pytest.raises(ChangeFeedError, match=r"1 of src changes the partitioning from \[\] to \['id'\]"):
            check_partitions("src", commits(None, by_id, before), before)
        with pytest.raises(ChangeFeedError, match=r"from \['id'\] to \[\]"):
            check_partitions("src", commits(by_id, before), None)
        check_partitions("src", commits(None, by_id, None), by_id)
    check_partitions("src", commits(by("a", 1), None, by("b", 1)), by("a"))  # mapped, and then renamed
    with pytest.raises(ChangeFeedError, match="changes the partitioning") as caught:
        check_partitions("src", commits(by("b", 2)), by("a", 1), is_first=True)
    assert "full_refresh" not in str(caught.value)


def line(**action: Any) -> str:
    return json.dumps(action)


def test_a_commit_is_read_from_its_file(tmp_path: Path) -> None:
    def read(data: bytes) -> SourceCommit:
        log = SourceLog(f"file://{tmp_path}", LocalStorage(), 3, ON)
        path = tmp_path / "_delta_log" / f"{3:020}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return log.needed(3)

    described = feed_state.Metadata.of(
        {
            "id": "t",
            "configuration": {"delta.enableChangeDataFeed": "TRUE", "delta.columnMapping.mode": "name"},
            "schemaString": json.dumps(struct(("id", "integer"))),
        }
    )
    assert described == MAPPED
    add = {"size": 100, "dataChange": True}
    text = [
        line(commitInfo={"operation": "MERGE", "timestamp": 5}),
        line(add=add),
        line(remove={**add, "size": 7}),
        line(add={**add, "dataChange": False}),
    ]
    commit = read("\n".join(text).encode())
    assert commit == SourceCommit(version=3, operation="MERGE", time_ms=5, size_bytes=107)
    text.append(line(cdc={"size": 11}))
    assert read("\n".join(text).encode()).size_bytes == 11
    assert feed_state.version_at([commit], 5) == 3
    assert feed_state.version_at([commit], 6) is None
    for damaged in (b'{"add": 1}', b"", b"\n", b'{"commitInfo": {}}\n{"add": {"pa', bytes(9), b"[1]"):
        with pytest.raises(TableUnreadableError, match="could not be understood"):
            read(damaged)


def test_a_state_is_read_as_it_was_written_or_refused() -> None:
    for at_ms in (None, 5):
        state = ChangeState(identifier="nightly", source="t", version=7, first=2, at_ms=at_ms)
        assert feed_state.decode(state.encode(), "x") == state
    assert feed_state.decode(None, "x") is None
    for text in ("{", "{}", "[1]", '{"identifier": "a", "source": "t", "version": "?", "first": 1}'):
        with pytest.raises(CheckpointCorruptError):
            feed_state.decode(text, "x")


def test_the_next_batch_begins_after_the_last_version_of_this_one() -> None:
    batch = VersionSlice(
        before=None, identifier="i", source="t", location="file:///s", first=3, last=7, snapshot=False,
        changed_bytes=0, last_ms=70,
    )  # fmt: skip
    later = replace(batch, before=feed_state.state_after(batch), first=8, last=9, last_ms=90)

    assert feed_state.state_of(batch) == ChangeState(identifier="i", source="t", version=7, first=3, at_ms=70)
    assert feed_state.state_of(later) == ChangeState(identifier="i", source="t", version=9, first=3, at_ms=90)


def test_the_last_version_that_was_read_is_the_one_that_is_there() -> None:
    state = ChangeState(identifier="nightly", source="t", version=7, first=2, at_ms=1_767_571_200_000)
    same, later = (SourceCommit(version=7, time_ms=1_767_571_200_000 + ms) for ms in (0, 1))
    feed_state.check_history("src", state, same)
    with pytest.raises(ChangeFeedError, match=r"is of 2026-01-05T00:00:00\.001.*was set back"):
        feed_state.check_history("src", state, later)
    for unknown, commit in (
        (state, None),
        (state, SourceCommit(version=7)),
        (replace(state, at_ms=None), later),
    ):
        feed_state.check_history("src", unknown, commit)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"table": "main.orders"}, "the table's folder"),
        ({"deletes": "drop"}, "one of 'apply', 'ignore', 'soft'"),
        ({"start_version": 1, "start_timestamp": "2026-01-01T00:00:00Z"}, "None with start_version"),
        ({"start_version": 1, "full_load": True}, "None with full_load=True"),
        ({"start_version": 5, "end_version": 4}, "or a later version"),
        ({"start_timestamp": "2026-01-01"}, "with its zone"),
        ({"max_commits_per_batch": 0}, "max_commits_per_batch"),
    ],
)
def test_a_source_that_cannot_be_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        CdfSource(**{"table": "/data/t", **fields})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"engine": ScopeEngine()}, "SCOPE jobs read files"),
        ({"mode": "data_interval"}, "the source is not read by time"),
        ({"write": "replace"}, "set full_load=True"),
        ({"write": {"kind": "merge", "merge_key": "day"}}, "name the columns that identify a row"),
        ({"write": {"kind": "merge", "primary_key": "id", "merge_key": "day"}}, "not whole groups"),
        ({"write": {"kind": "merge", "strategy": "insert-only", "primary_key": "id"}}, "updates and deletes"),
        ({"write": {"kind": "scd2"}}, "all others would be retired"),
        (
            {"write": {"kind": "scd2", "merge_key": "id"}, "source": {"table": "/data/t", "deletes": "soft"}},
            "deletes='apply'",
        ),
        ({"source": {"table": "/data/t", "deletes": "ignore"}}, "every change is added"),
    ],
)
def test_what_does_not_go_with_a_feed_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        ingest_from(arguments(**{"source": {"table": "/data/t"}, **changed}))
    assert words in str(caught.value)


def test_a_dict_with_a_table_and_no_cursor_is_a_feed() -> None:
    assert source_from({"table": "/data/t"}) == CdfSource(table="/data/t")


@pytest.mark.parametrize(
    ("start", "nothing", "refused"),
    [
        (1, "", ""),
        (2, "up to version 1, before version 2", ""),  # the next one: that of a load that is taken over
        (3, "", "source.start_version is 3, and the newest version of file:.* is 1"),
    ],
)
def test_a_first_load_may_begin_at_the_next_version_and_not_behind_it(
    tmp_path: Path, start: int, nothing: str, refused: str
) -> None:
    rows = pa.table({"id": [1]})
    for _ in range(2):
        write_deltalake(
            tmp_path / "src", rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"}
        )
    source = ChangeRows(
        spec=CdfSource(table=f"file://{tmp_path}/src", start_version=start),
        place="here",
        storage=LocalStorage(),
    )
    source.read_source_log()
    report = source.begin_report(0)
    if refused:
        with pytest.raises(ChangeFeedError, match=refused):
            source.slice_after(None, report)
        return
    versions = source.slice_after(None, report)

    assert (versions is None) == bool(nothing)
    assert nothing in report.nothing
    if versions:
        assert (versions.first, versions.last, versions.location) == (1, 1, f"file://{tmp_path}/src")
        assert versions.first_ms == versions.last_ms
        assert versions.first_ms is not None


class CleanedLog:
    """A table whose first commits Delta has cleaned up: a checkpoint tells what they did."""

    def __init__(self, folder: Path, actions: list[dict[str, Any]]) -> None:
        self.written, self.time = folder / "written", 0
        self.commit(*actions)
        self.commit()
        DeltaTable(self.written).create_checkpoint()
        self.path(0).unlink()

    def path(self, version: int) -> Path:
        return self.written / "_delta_log" / f"{version:020}.json"

    def commit(self, *actions: dict[str, Any]) -> None:
        path = self.path(self.time)
        path.parent.mkdir(parents=True, exist_ok=True)
        info = {"commitInfo": {"timestamp": self.time, "operation": "WRITE"}}
        path.write_text("\n".join(map(json.dumps, [info, *actions])))
        self.time += 1

    def source(self, name: str, **start: Any) -> ChangeRows:
        """Return its feed, read under a name; the table stays there."""
        folder = self.written.with_name(name)
        if not folder.exists():
            self.written.rename(folder)
        spec = CdfSource(table=f"file://{folder}", **start)
        source = ChangeRows(
            spec=spec, place="here", storage=LocalStorage(), goes_by_keys=True, goes_by_names=True
        )
        source.read_source_log()
        return source


def metadata(columns: dict[str, Any], **configuration: str) -> dict[str, Any]:
    text = json.dumps(columns)
    return {
        "metaData": {
            "id": "t",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": text,
            "partitionColumns": [],
            "configuration": configuration,
        }
    }


PROTOCOL = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
FILE = {"path": "f", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
WHEREVER = pytest.mark.parametrize("name", ["src", "a%20b"])  # read in place, and from a copy of the log


@WHEREVER
def test_a_feed_that_was_enabled_when_older_commits_were_cleaned_up_begins_there(
    tmp_path: Path, name: str
) -> None:
    table = CleanedLog(tmp_path, [PROTOCOL, metadata(struct(("id", "integer"))), {"add": FILE}])
    table.commit(metadata(struct(("id", "integer")), **{"delta.enableChangeDataFeed": "true"}))
    table.commit()
    DeltaTable(table.written).create_checkpoint()
    report = RunReport(roots=("src",), now_ms=0)

    versions = table.source(name).slice_after(None, report)
    assert versions is not None
    assert (versions.first, versions.last) == (2, 3)
    assert "had rows before version 2" in report.warnings["earlier rows"]
    with pytest.raises(ChangeFeedError, match="enabled only with version 2"):
        table.source(name, start_version=1).slice_after(None, report)
    assert table.source(name, end_version=1).slice_after(None, report) is None
    assert report.nothing.endswith("is read up to version 1, before version 2")


@pytest.mark.parametrize("full_load", [True, False])
def test_a_batch_that_is_still_to_run_is_refused_if_the_source_was_set_back(
    tmp_path: Path, full_load: bool
) -> None:
    rows, feed = pa.table({"id": [1]}), {"delta.enableChangeDataFeed": "true"}
    for _ in range(2):
        write_deltalake(tmp_path / "src", rows, mode="append", configuration=feed)
    spec = CdfSource(table=f"file://{tmp_path}/src", full_load=full_load)
    source = ChangeRows(spec=spec, place="here", storage=LocalStorage())
    source.read_source_log()
    planned = source.slice_after(None, RunReport(roots=("src",), now_ms=0))
    assert planned is not None
    write_deltalake(tmp_path / "src", rows, mode="append")
    source.check_planned(replace(planned, last=2, last_ms=None))  # by a run that read the log later
    for version in (1, 2):
        (tmp_path / "src" / "_delta_log" / f"{version:020}.json").unlink()
    source.read_source_log()

    with pytest.raises(ChangeFeedError, match="its log was set back to an earlier version"):
        source.check_planned(planned)


@WHEREVER
def test_a_batch_that_is_still_to_run_is_refused_if_the_source_was_partitioned_anew(
    tmp_path: Path, name: str
) -> None:
    created = metadata(struct(("id", "integer"), ("p", "string")), **{"delta.enableChangeDataFeed": "true"})
    table = CleanedLog(tmp_path, [PROTOCOL, created])
    table.commit({"add": FILE})
    table.commit({"metaData": {**created["metaData"], "partitionColumns": ["p"]}})
    source = table.source(name, start_version=1, end_version=2)
    planned = source.slice_after(None, RunReport(roots=("src",), now_ms=0))

    assert planned is not None
    with pytest.raises(ChangeFeedError, match=r"Version 3 of .* the partitioning from \[\] to \['p'\]"):
        source.check_planned(planned)
    source.check_planned(replace(planned, snapshot=True))
    snapshot = table.source(name, full_load=True, end_version=2)
    with pytest.raises(ChangeFeedError, match="leave end_version=2 out"):
        snapshot.slice_after(None, RunReport(roots=("src",), now_ms=0))


def test_a_snapshot_of_before_the_feed_is_refused_if_changes_lie_between(tmp_path: Path) -> None:
    rows, report = pa.table({"id": [1]}), RunReport(roots=("src",), now_ms=0)
    for _ in range(2):
        write_deltalake(tmp_path / "src", rows, mode="append")
    DeltaTable(tmp_path / "src").alter.set_table_properties({"delta.enableChangeDataFeed": "true"})

    def snapshot_of(version: int) -> VersionSlice | None:
        spec = CdfSource(table=f"file://{tmp_path}/src", full_load=True, end_version=version)
        source = ChangeRows(spec=spec, place="here", storage=LocalStorage())
        source.read_source_log()
        return source.slice_after(None, report)

    with pytest.raises(ChangeFeedError, match="was off from version 1 on") as caught:
        snapshot_of(0)
    assert "leave end_version=0 out, or set a later one" in str(caught.value)
    assert snapshot_of(1)  # version 2 enables the feed, and changes nothing else
    write_deltalake(tmp_path / "src", rows, mode="append")
    DeltaTable(tmp_path / "src").restore(2)
    with pytest.raises(ChangeFeedError, match="leave end_version=2 out") as caught:
        snapshot_of(2)
    assert "is a RESTORE" in str(caught.value)
    DeltaTable(tmp_path / "src").create_checkpoint()
    (tmp_path / "src" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(ChangeFeedError, match="leave end_version=0 out") as caught:
        snapshot_of(0)
    assert "no longer has version 1" in str(caught.value)


@WHEREVER
@pytest.mark.parametrize(
    ("after", "refusal"),
    [
        ([(1, "w")], "renames the column 'v' to 'w'"),
        ([(2, "v")], "The name 'v' now stands for another column"),
        ([], "drops the column 'v'"),
    ],
)
def test_columns_are_compared_though_the_commit_that_made_them_was_cleaned_up(
    tmp_path: Path, name: str, after: list[tuple[int, str]], refusal: str
) -> None:
    def mapped(*columns: tuple[int, str]) -> dict[str, Any]:
        fields = struct(("id", "integer"), *((column, "string") for _, column in columns))
        for number, field in zip((0, *(n for n, _ in columns)), fields["fields"], strict=True):
            ids = {"id": number + 1, "physicalName": f"c{number}"}
            field["metadata"] = {f"delta.columnMapping.{key}": value for key, value in ids.items()}
        on = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
        return metadata(fields, **on)

    table = CleanedLog(tmp_path, [PROTOCOL, mapped((1, "v"))])
    table.commit()
    table.commit(mapped(*after))
    source = table.source(name)
    state = ChangeState(identifier="default", source="t", version=1, first=0)
    report = RunReport(roots=("src",), now_ms=0)
    if "stands for" not in refusal:
        versions = source.slice_after(state.encode(), report)
        assert versions is not None
        assert (versions.first, versions.last) == (2, 2)  # and not with the version that changes the columns
        state = replace(state, version=2)
    with pytest.raises(ChangeFeedError, match=refusal):
        source.slice_after(state.encode(), report)


# ---- when a feed may be lost before it is loaded -----------------------------------------------------


SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000
T = "file:///data/orders"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 7 days", 7 * DAY),
        ("interval 1 week", 7 * DAY),
        ("interval 30 day", 30 * DAY),
        ("7 days", 7 * DAY),
        ("INTERVAL 2 Weeks", 14 * DAY),
        ("  interval   168   hours  ", 7 * DAY),
        ("interval 1 week 12 hours", 7 * DAY + 12 * HOUR),
        ("interval 1 day -1 hour", 23 * HOUR),
        ("interval 1 day - 1 hour", 23 * HOUR),
        ("interval +90 minutes", 90 * MINUTE),
        ("interval 1.5 seconds", 1_500),
        ("interval .5 second", 500),
        ("interval 1500 milliseconds", 1_500),
        ("interval 2000 microseconds", 2),
        ("interval 0 hours", 0),
        ("interval 1\tday", DAY),
        ("interval -1 day 2 days", DAY),
        ("interval 1. seconds", SECOND),
    ],
)
def test_an_interval_is_read_as_delta_spells_it(text: str, expected: int) -> None:
    assert feed_state.interval_ms(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "interval 7",
        "7",
        "days",
        "interval7 days",
        "interval 7days",
        "interval 1.5 days",
        "interval 1 month",
        "interval 1 year",
        "interval -1 day",
        "interval 7 days and 1 hour",
        "interval seven days",
        "interval '7' days",
        "P7D",
        "interval 7 fortnights",
        "interval 99999999999 days",
        "interval\t1 day",
        "interval 1.0000000001 seconds",
        f"interval {'9' * 400} days",
    ],
)
def test_what_delta_does_not_take_for_an_interval_is_none(text: str) -> None:
    assert feed_state.interval_ms(text) is None


def behind(age_ms: int | None) -> feed_state.Lag:
    oldest = None if age_ms is None else NOW - age_ms
    return feed_state.Lag(commits=3, size_bytes=10, version=5, oldest_ms=oldest)


@pytest.mark.parametrize(
    ("age_ms", "kept", "words"),
    [
        (84 * HOUR, {}, ""),  # half of 7 days: not yet
        (
            84 * HOUR + SECOND,
            {},
            f"version 5 of {T} is 3 d 12 h old and not loaded. At 7 d ({feed_state.FILES}) VACUUM may delete",
        ),
        (7 * DAY, {}, "At 7 d (delta.deletedFileRetentionDuration)"),
        (
            7 * DAY + MINUTE,
            {},
            "is 7 d old and not loaded, which is beyond delta.deletedFileRetentionDuration (7 d): VACUUM may",
        ),
        (
            2 * HOUR,
            {feed_state.LOG: "interval 3 hours"},
            f"At 3 h ({feed_state.LOG}) the source's log may lose",
        ),
        (4 * HOUR, {feed_state.LOG: "interval 3 hours"}, "beyond delta.logRetentionDuration (3 h)"),
        (16 * DAY, {feed_state.FILES: "interval 60 days"}, "At 30 d (delta.logRetentionDuration)"),
        (
            5 * HOUR,
            {feed_state.FILES: "6 hours", feed_state.LOG: "6 hours"},
            "At 6 h (delta.deletedFileRetentionDuration)",
        ),
        (MINUTE, {feed_state.FILES: "interval 0 hours"}, "beyond delta.deletedFileRetentionDuration (0 s)"),
        (None, {}, ""),  # no commit says when it was made
        (-HOUR, {}, ""),  # a clock that is behind
    ],
)
def test_half_of_the_shorter_time_is_warned_of(age_ms: int | None, kept: dict[str, str], words: str) -> None:
    said = feed_state.lag_warning(T, behind(age_ms), kept, NOW)

    assert words in said
    assert bool(said) == bool(words)


def test_a_setting_that_is_no_interval_is_named_and_the_other_one_counts() -> None:
    said = feed_state.lag_warning(T, behind(29 * DAY), {feed_state.FILES: "a week"}, NOW)

    assert said.startswith(f"delta.deletedFileRetentionDuration of {T} is 'a week', which is not an interval")
    assert "At 30 d (delta.logRetentionDuration)" in said
    both = feed_state.lag_warning(
        T, behind(99 * DAY), {feed_state.FILES: "a week", feed_state.LOG: "interval 1 month"}, NOW
    )
    assert both.count("which is not an interval") == 2
    assert "days" not in both
    assert "99 d" not in both


def test_nothing_is_said_where_nothing_is_left() -> None:
    assert feed_state.lag_warning(T, None, {feed_state.FILES: "a week"}, NOW) == ""
    assert feed_state.lag_of([]) is None


def test_a_lag_counts_commits_and_bytes_and_takes_the_oldest_time_that_is_told() -> None:
    pending = [
        SourceCommit(version=3, size_bytes=5),
        SourceCommit(version=4, time_ms=NOW, size_bytes=7),
        SourceCommit(version=5, time_ms=NOW + 1),
    ]

    assert feed_state.lag_of(pending) == feed_state.Lag(commits=3, size_bytes=12, version=3, oldest_ms=NOW)


def test_the_source_tells_how_long_it_keeps_things_in_any_case_of_its_names() -> None:
    configuration = {"delta.LOGretentionDuration": "interval 1 day", "other": "x"}
    described = Metadata.of(
        {"id": "t", "configuration": configuration, "schemaString": json.dumps({"fields": []})}
    )

    assert described.kept == {feed_state.LOG: "interval 1 day"}


def test_warnings_are_told_once_each_and_fit_into_xcom() -> None:
    report = RunReport(roots=(T,), warnings={"a": "é" * 3000, "b": "two", "c": "two"})

    assert report.text().count("warning: two") == 1
    assert len(json.dumps(report.to_xcom())) <= XCOM_LIMIT_BYTES
    report = RunReport(roots=(T,), warnings={"b": "two", "c": "two"})
    assert report.to_xcom()["warnings"] == ["two"]
