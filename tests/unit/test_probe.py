"""The probe needs no JVM, so deltalake must open whatever Spark writes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.delta import log as delta_log
from airflow_provider_scope.delta.commit import DeltaCommit
from airflow_provider_scope.exceptions import TableUnreadableError
from airflow_provider_scope.protocol.probe import are_harmless, probe
from airflow_provider_scope.protocol.recovery import NO_BASELINE, Baseline
from airflow_provider_scope.stores.local import LocalStorage
from tests.support.delta_engine import numbered

if TYPE_CHECKING:
    from pathlib import Path

FIRST_COMMIT = f"_delta_log/{0:020}.json"


def add(folder: Path, number: int) -> None:
    """Load a batch of one row."""
    properties = numbered("pipeline", number)
    write_deltalake(str(folder), pa.table({"a": [1]}), mode="append", commit_properties=properties)


def a_table_that_needs(feature: str, folder: Path) -> str:
    write_deltalake(str(folder), pa.table({"a": [1]}), commit_properties=numbered("pipeline", 7))
    actions = [json.loads(line) for line in (folder / FIRST_COMMIT).read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [feature],
                "writerFeatures": [feature],
            }
    (folder / FIRST_COMMIT).write_text("\n".join(json.dumps(action) for action in actions) + "\n")
    return f"file://{folder}"


@pytest.mark.parametrize(
    "feature",
    [
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    ],
)
def test_a_table_with_a_feature_for_readers_is_probed(feature, tmp_path):
    """These are the features of Delta 4.4 for readers, but for those of the next test."""
    state = probe(a_table_that_needs(feature, tmp_path), "pipeline", NO_BASELINE, LocalStorage())

    assert (state.version, state.txn) == (0, 7)


@pytest.mark.parametrize(
    "feature",
    [
        "adaptiveMetadata-preview",
        "catalogManaged",
        "geospatial",
        "redirectReaderWriter-preview",
        "aFeatureOfTheFuture",
    ],
)
def test_a_table_that_cannot_be_opened_is_an_error_and_never_a_missing_table(feature, tmp_path):
    with pytest.raises(TableUnreadableError, match="DROP FEATURE"):
        probe(a_table_that_needs(feature, tmp_path), "pipeline", NO_BASELINE, LocalStorage())


@pytest.mark.parametrize(
    "stale", ["an older checkpoint", "a checkpoint that is gone", "nothing that can be read"]
)
def test_the_hint_for_readers_of_the_log_decides_nothing(stale, tmp_path):
    """Azure's driver may let the older one of two writers win: `_last_checkpoint` tells what is not so."""
    hint = tmp_path / "_delta_log" / "_last_checkpoint"
    hints = []
    for version in range(4):
        add(tmp_path, version)
        if version in (1, 2):
            DeltaTable(str(tmp_path)).create_checkpoint()
            hints.append(hint.read_bytes())
    if stale == "a checkpoint that is gone":
        (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").unlink()
    hint.write_bytes(b"{" if stale == "nothing that can be read" else hints[0])

    state = probe(f"file://{tmp_path}", "pipeline", NO_BASELINE, LocalStorage())

    assert (state.version, state.txn) == (3, 3)


def test_a_restore_changes_more_than_rows_even_if_its_writer_leaves_the_metadata_out():
    rows = [{"add": {}}, {"remove": {}}, {"txn": {}}]
    write, restore = (
        DeltaCommit(1, [{"commitInfo": {"operation": name}}, *rows]) for name in ("WRITE", "RESTORE")
    )

    assert are_harmless([write])
    assert not are_harmless([write, restore])
    assert not are_harmless([DeltaCommit(1, [{"metaData": {}}])])


def test_a_commit_that_says_nothing_of_itself_does_not_move_the_versions_of_others(tmp_path):
    """`commitInfo` is optional in Delta's protocol."""
    for seq in range(4):
        add(tmp_path, seq)
    DeltaTable(str(tmp_path)).restore(2)
    silent = tmp_path / "_delta_log" / f"{1:020}.json"
    lines = [line for line in silent.read_text().splitlines() if "commitInfo" not in line]
    silent.write_text("\n".join(lines) + "\n")

    state = probe(f"file://{tmp_path}", "pipeline", NO_BASELINE, LocalStorage())

    assert {seq: batch.version for seq, batch in state.committed.items()} == {0: 0, 2: 2, 3: 3}
    assert [(restored.version, restored.to_version) for restored in state.restores] == [(4, 2)]


def test_a_merge_that_gives_the_table_another_id_leaves_its_rows_there(tmp_path):
    for seq in range(2):
        add(tmp_path, seq)
    before = probe(f"file://{tmp_path}", "pipeline", NO_BASELINE, LocalStorage())
    table = DeltaTable(str(tmp_path))
    more = pa.table({"a": [1], "more": ["new"]})
    table.merge(more, "s.a = t.a", "s", "t", merge_schema=True).when_matched_update_all().execute()

    state = probe(f"file://{tmp_path}", "pipeline", Baseline(before.identity, before.version), LocalStorage())
    assert state.table_id != before.table_id
    assert state.restores == ()
    assert [*state.committed] == [1, 0]
    DeltaTable.create(str(tmp_path), table.schema(), mode="overwrite")
    replaced = probe(
        f"file://{tmp_path}", "pipeline", Baseline(before.identity, before.version), LocalStorage()
    )
    assert [(one.version, one.to_version) for one in replaced.restores] == [(3, -1)]


@pytest.mark.parametrize("batches", [1, 2])
def test_a_clone_in_the_place_of_the_rows_is_seen_though_it_keeps_the_id_of_the_table(tmp_path, batches):
    """`CREATE OR REPLACE TABLE … CLONE` of a table that was emptied, as Delta 4.4 writes it."""
    for seq in range(batches):
        add(tmp_path, seq)
    before = probe(f"file://{tmp_path}", "pipeline", NO_BASELINE, LocalStorage())
    actions = [json.loads(line) for line in (tmp_path / FIRST_COMMIT).read_text().splitlines()]
    kept = [action for action in actions if action.keys() & {"add", "metaData", "protocol"}]
    info = {"operation": "CLONE", "operationParameters": {"sourceVersion": 0, "isShallow": True}}
    commit = "\n".join(json.dumps(action) for action in [{"commitInfo": info}, *kept])
    (tmp_path / FIRST_COMMIT.replace(f"{0:020}", f"{batches:020}")).write_text(commit)

    state = probe(f"file://{tmp_path}", "pipeline", Baseline(before.identity, before.version), LocalStorage())

    assert state.table_id == before.table_id
    assert [(one.version, one.to_version) for one in state.restores] == [(batches, None)]


def test_a_table_that_is_created_while_it_is_looked_for_is_found(tmp_path, monkeypatch):
    """Its first commit may come between deltalake's look and our own."""
    (tmp_path / "_delta_log").mkdir()
    names = delta_log.open_storage

    def created_meanwhile(location: str):
        write_deltalake(str(tmp_path), pa.table({"a": [1]}), mode="append")
        return names(location)

    monkeypatch.setattr(delta_log, "open_storage", created_meanwhile)

    assert probe(f"file://{tmp_path}", "pipeline", NO_BASELINE, LocalStorage()).version == 0


def test_of_two_folders_the_one_that_is_named_is_opened(tmp_path):
    """deltalake itself takes ``a%20b`` for ``a b``."""
    for name, numbers in {"a b": (7, 8), "made": (3,)}.items():
        for number in numbers:
            add(tmp_path / name, number)
    (tmp_path / "made").rename(tmp_path / "a%20b")
    places = [f"file://{tmp_path}/{name}" for name in ("a b", "a%20b", "a%2fb")]

    states = [probe(place, "pipeline", NO_BASELINE, LocalStorage()) for place in places]
    assert [(state.version, state.txn) for state in states[:2]] == [(1, 8), (0, 3)]
    assert [delta_log.newest_version(place, LocalStorage()) for place in places] == [1, 0, -1]


def cut(log: Path) -> None:
    (log / NEWEST).write_bytes((log / NEWEST).read_bytes()[:-20])


def emptied(log: Path) -> None:
    (log / NEWEST).write_bytes(b"")


def of_zeros(log: Path) -> None:
    (log / NEWEST).write_bytes(bytes((log / NEWEST).stat().st_size))


def a_newer_writer(log: Path) -> None:
    protocol = {"protocol": {"minReaderVersion": 4, "minWriterVersion": 9}}
    (log / NEWEST).write_text(f"{(log / NEWEST).read_text()}\n{json.dumps(protocol)}\n")


def a_later_checksum(log: Path) -> None:
    (log / f"{5:020}.crc").write_text("{}")


def a_link_to_nowhere(log: Path) -> None:
    (log / NEWEST).unlink()
    (log / NEWEST).symlink_to("/nowhere/commit.json")


def a_folder_that_leads_nowhere(log: Path) -> None:
    log.rename(log.with_name("moved"))
    log.symlink_to("/nowhere/log")


NEWEST = f"{2:020}.json"
DAMAGES = {
    cut: (f"{NEWEST} is damaged", f"restore {NEWEST} from a copy"),
    emptied: (f"{NEWEST} is damaged: it holds nothing", f"restore {NEWEST} from a copy"),
    of_zeros: (f"{NEWEST} is damaged", f"restore {NEWEST} from a copy"),
    a_newer_writer: ("Unsupported minimum reader version 4", "written by a newer writer"),
    a_later_checksum: (f"{5:020}.crc, a checksum of version 5", f"{3:020}.json"),
    a_link_to_nowhere: (f"{NEWEST} is a link to /nowhere/commit.json", "bring back /nowhere/commit.json"),
    a_folder_that_leads_nowhere: ("_delta_log is a link to /nowhere/log", "bring back /nowhere/log"),
}


@pytest.mark.parametrize("app_id", [None, "pipeline"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_of_a_damaged_log_the_message_names_the_file_and_what_helps(damage, app_id, tmp_path):
    for _ in range(3):
        write_deltalake(str(tmp_path), pa.table({"a": [1]}), mode="append")
    damage(tmp_path / "_delta_log")

    with pytest.raises(TableUnreadableError) as caught:
        probe(f"file://{tmp_path}", app_id, NO_BASELINE, LocalStorage())

    what, do = DAMAGES[damage]
    assert (what in caught.value.what, do in caught.value.do) == (True, True), str(caught.value)
    assert "<unknown>" not in str(caught.value)
    assert not re.search("permission|read access|rights", caught.value.do)


def test_a_recorded_version_whose_commit_was_emptied_since_is_told(tmp_path):
    """deltalake opens such a table, as if the version had no changes, if a checksum is beside the commit."""
    location = f"file://{tmp_path}"
    for _ in range(3):
        write_deltalake(str(tmp_path), pa.table({"a": [1]}), mode="append")
    recorded = probe(location, "pipeline", NO_BASELINE, LocalStorage())
    (tmp_path / f"_delta_log/{NEWEST}").write_bytes(b"")
    (tmp_path / f"_delta_log/{2:020}.crc").write_text("{}")

    with pytest.raises(TableUnreadableError, match=f"{NEWEST} is damaged: it holds nothing") as caught:
        probe(location, "pipeline", Baseline(recorded.identity, recorded.version), LocalStorage())
    assert f"with {2:020}.crc and, on a disk, .{NEWEST}.crc" in caught.value.do


@pytest.mark.parametrize(
    ("cause", "is_refusal"),
    [
        (PermissionError(13, "Permission denied", "/t/_delta_log/0.json"), True),
        (OSError("Generic LocalFileSystem error: Permission denied (os error 13)"), True),
        (OSError(5, "Input/output error"), False),
        ("it holds neither a commit nor a checkpoint", False),
    ],
)
def test_permissions_are_the_advice_for_what_lacks_them_and_for_nothing_else(cause, is_refusal):
    do = delta_log.unreadable("file:///t", cause).do

    assert do.startswith("give the worker read access") is is_refusal
