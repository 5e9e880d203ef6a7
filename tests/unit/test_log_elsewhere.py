"""A table on a remote store answers as it does in place: only a part of its log is copied."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.delta import log as delta_log
from airflow_provider_scope.delta.log import newest_version, table_columns
from airflow_provider_scope.emulator import Emulator
from airflow_provider_scope.exceptions import (
    BatchOutcomeUnknownError,
    StorageError,
    TableUnreadableError,
)
from airflow_provider_scope.hooks.stores import store_of
from airflow_provider_scope.protocol import probe as table_probe
from airflow_provider_scope.protocol.probe import probe
from airflow_provider_scope.protocol.records import TableIdentity
from airflow_provider_scope.protocol.recovery import MISSING_TABLE, NO_BASELINE, Baseline, TableState
from airflow_provider_scope.scope.fate import changes
from airflow_provider_scope.stores.local import LocalStorage
from tests.support.delta_engine import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_provider_scope.stores.protocol import Storage

PIPELINE = "11111111-1111-1111-1111-111111111111"
DISK = LocalStorage()


class Reading:
    """A storage that remembers what was read, and does something before it."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.read_names: list[str] = []
        self.before: Callable[[str], None] = lambda _: None

    def read(self, path: str, at_most: int = 1 << 30) -> bytes | None:
        self.before(path)
        self.read_names.append(path.partition("/_delta_log/")[2])
        return self.storage.read(path, at_most)

    def names(self, folder: str) -> list[str]:
        return self.storage.names(folder)


class Two:
    """One table, in place and on a cluster's WebHDFS service."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.folder = emulator.account.root / "lake" / "t"
        self.here = f"file://{self.folder}"
        self.there = f"webhdfs://127.0.0.1:{emulator.port}/lake/t"
        self.storage = Reading(store_of(self.there).storage)

    def append(self, seq: int, **more: Any) -> None:
        ours = numbered(PIPELINE, seq)
        write_deltalake(
            str(self.folder), pa.table({"a": [seq]}), mode="append", commit_properties=ours, **more
        )
        self.checksum()

    def checksum(self, **other: Any) -> None:
        """Write the checksum file that Spark writes beside a commit; delta-rs writes none."""
        table = self.table()
        path = self.log(f"{table.version():020}.json")
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["txnId"] = f"commit {table.metadata().id} {table.version()}"
        path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        newest = table.transaction_version(PIPELINE)
        value = {
            "txnId": f"commit {table.metadata().id} {table.version()}",
            "metadata": {"id": str(table.metadata().id)},
            "setTransactions": [{"appId": PIPELINE, "version": newest}] if newest is not None else [],
            **other,
        }
        path.with_suffix(".crc").write_text(json.dumps(value))

    def table(self) -> DeltaTable:
        return DeltaTable(str(self.folder))

    def log(self, name: str) -> Path:
        return self.folder / "_delta_log" / name

    def identity(self) -> TableIdentity:
        return TableIdentity(str(self.table().metadata().id), None)

    def same_since(self, baseline: Baseline) -> TableState:
        """See that both show the batches since a record that the whole log shows, and give them."""
        with mock.patch.object(table_probe, "newest_commits", return_value=None):
            whole = probe(self.here, PIPELINE, baseline, DISK)
        assert probe(self.here, PIPELINE, baseline, DISK) == whole
        assert probe(self.there, PIPELINE, baseline, self.storage) == whole
        return whole

    def same(self, baseline: Baseline = NO_BASELINE) -> TableState:
        """See that both give one answer, and give it."""
        here = self.same_since(baseline)
        assert probe(self.there, None, baseline, self.storage) == probe(self.here, None, baseline, DISK)
        assert newest_version(self.there, self.storage) == newest_version(self.here, DISK) == here.version
        assert table_columns(self.there, self.storage) == table_columns(self.here, DISK)
        return here


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with Emulator(tmp_path / "account", max_append_bytes=2**30) as emulator:
        yield Two(emulator)


def test_no_table_is_none_and_an_empty_folder_too(two):
    assert two.same() == MISSING_TABLE
    two.folder.mkdir(parents=True)
    assert two.same() == MISSING_TABLE
    (two.folder / "_delta_log").mkdir()
    assert two.same() == MISSING_TABLE


def test_a_log_without_a_checkpoint(two):
    for seq in range(3):
        two.append(seq)
    found = two.same()
    assert (found.version, found.txn, sorted(found.committed)) == (2, 2, [0, 1, 2])
    assert two.same(Baseline(two.identity(), 0)).committed.keys() == {1, 2}


def test_more_than_ten_commits_with_a_checkpoint_are_read_from_there_on(two):
    for seq in range(15):
        two.append(seq)
        if seq == 11:
            two.table().create_checkpoint()
    two.log(f"{14:020}.crc").unlink()
    assert two.same().committed.keys() == set(range(15))

    two.storage.read_names.clear()
    found = probe(two.there, PIPELINE, Baseline(two.identity(), 13), two.storage)

    assert (found.version, found.txn, [*found.committed]) == (14, 14, [14])
    assert set(two.storage.read_names) == {
        f"{11:020}.checkpoint.parquet",
        *(f"{version:020}.json" for version in (11, 12, 13, 14)),
        f"{14:020}.crc",
    }


def test_a_transaction_that_only_the_checkpoint_tells(two):
    two.append(7)
    write_deltalake(str(two.folder), pa.table({"a": [1]}), mode="append")
    two.table().create_checkpoint()
    two.log(f"{0:020}.json").unlink()
    write_deltalake(str(two.folder), pa.table({"a": [1]}), mode="append")
    found = two.same(Baseline(two.identity(), 1))
    assert (found.version, found.txn, found.committed) == (2, 7, {})


def test_a_restore_is_seen(two):
    for seq in range(4):
        two.append(seq)
    two.table().restore(1)
    found = two.same(Baseline(two.identity(), 2))
    assert [(one.version, one.to_version) for one in found.restores] == [(4, 1)]
    assert found.identity.restore_version == 4


def test_a_log_that_was_cleaned_behind_the_baseline_is_an_unknown_outcome(two):
    for seq in range(5):
        two.append(seq)
    two.table().create_checkpoint()
    for version in range(3):
        two.log(f"{version:020}.json").unlink()
    assert two.same(Baseline(two.identity(), 2)).version == 4
    for where, storage in ((two.here, DISK), (two.there, two.storage)):
        with pytest.raises(BatchOutcomeUnknownError, match="versions 2 to 4"):
            probe(where, PIPELINE, Baseline(two.identity(), 1), storage)


def test_a_table_that_was_made_again_tells_all_of_its_commits(two):
    two.append(0)
    old = two.identity()
    shutil.rmtree(two.folder)
    for seq in range(4):
        two.append(seq)
    found = two.same(Baseline(old, 2))
    assert found.committed.keys() == {0, 1, 2, 3}
    assert found.identity.table_id != old.table_id


def test_changes_are_the_same(two):
    for seq in range(4):
        two.append(seq)
    two.table().restore(2)
    here = changes(two.here, 0, 4, DISK)
    assert changes(two.there, 0, 4, two.storage) == here
    assert [one.adds for one in here] == [True, True, True, False]


def test_what_delta_deletes_while_it_is_read_is_looked_for_again(two):
    for seq in range(12):
        two.append(seq)
        if seq == 5:
            two.table().create_checkpoint()
    done: list[str] = []

    def clean(path: str) -> None:
        if not done:
            done.append(path)
            two.append(12)
            two.table().create_checkpoint()
            for version in range(12):
                two.log(f"{version:020}.json").unlink()
            two.log(f"{5:020}.checkpoint.parquet").unlink()

    two.storage.before = clean
    found = probe(two.there, PIPELINE, Baseline(two.identity(), 11), two.storage)
    assert done
    assert (found.version, found.txn, [*found.committed]) == (12, 12, [12])


def test_a_log_that_is_always_gone_is_unreadable_and_never_missing(two, monkeypatch):
    two.append(0)
    monkeypatch.setattr(two.storage, "read", lambda path, at_most: None)
    with pytest.raises(TableUnreadableError, match=r"0\.json was deleted while it was read, 4 times"):
        probe(two.there, PIPELINE, NO_BASELINE, two.storage)


def test_a_hole_of_a_listing_in_pages_is_listed_again(two):
    for seq in range(4):
        two.append(seq)
    whole = two.storage.names
    answers = [lambda folder: [name for name in whole(folder) if "0002.json" not in name], whole, whole]
    two.storage.names = lambda folder: answers.pop(0)(folder) if answers else whole(folder)
    assert probe(two.there, PIPELINE, NO_BASELINE, two.storage).committed.keys() == {0, 1, 2, 3}


def test_a_hole_that_stays_is_unreadable(two):
    for seq in range(4):
        two.append(seq)
    two.log(f"{2:020}.json").unlink()
    for where, storage in ((two.here, DISK), (two.there, two.storage)):
        with pytest.raises(
            TableUnreadableError, match="lacks version 2, and there is no checkpoint"
        ) as caught:
            probe(where, PIPELINE, NO_BASELINE, storage)
        assert f"restore the file {2:020}.json" in caught.value.do


def test_who_may_not_look_is_not_told_that_there_is_no_table(two):
    two.append(0)
    two.emulator.set(denied_paths=("/lake/t/_delta_log",))
    for look in (
        lambda: probe(two.there, PIPELINE, NO_BASELINE, two.storage),
        lambda: newest_version(two.there, two.storage),
        lambda: table_columns(two.there, two.storage),
    ):
        with pytest.raises(TableUnreadableError, match="could not be read"):
            look()
    with pytest.raises(StorageError):
        changes(two.there, -1, 0, two.storage)


def test_a_log_that_is_too_large_is_refused(two, monkeypatch):
    two.append(0)
    monkeypatch.setattr(delta_log, "COPY_LIMIT_BYTES", 100)
    with pytest.raises(TableUnreadableError, match="larger than 100 bytes"):
        probe(two.there, PIPELINE, NO_BASELINE, two.storage)


def test_a_sidecar_cannot_lead_out_of_the_copy(two):
    two.append(0)
    two.log(f"{0:020}.checkpoint.{PIPELINE}.json").write_text(
        json.dumps({"sidecar": {"path": "../../../evil.parquet", "sizeInBytes": 1}})
    )
    with pytest.raises(TableUnreadableError, match=r"it names '\.\./\.\./\.\./evil\.parquet'"):
        probe(two.there, PIPELINE, NO_BASELINE, two.storage)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "kind",
    [
        "v2 parquet",
        *(pytest.param(kind, marks=pytest.mark.loads) for kind in ("classic", "multipart", "v2 json")),
    ],
)
def test_checkpoints_that_spark_writes(two, spark, kind):
    properties = "'delta.checkpointInterval' = '2'"
    if kind.startswith("v2"):
        properties += ", 'delta.checkpointPolicy' = 'v2'"
    conf = {
        "multipart": {"spark.databricks.delta.checkpoint.partSize": "1"},
        "v2 json": {
            "spark.databricks.delta.checkpointV2.topLevelFileFormat": "json",
            "spark.databricks.delta.checkpoint.partSize": "1",
        },
        "v2 parquet": {
            "spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet",
            "spark.databricks.delta.checkpoint.partSize": "1",
        },
    }.get(kind, {})
    spark.sql(f"CREATE TABLE delta.`{two.folder}` (a BIGINT) USING delta TBLPROPERTIES ({properties})")
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        for seq in range(3):
            ours = json.dumps({"abandoned": False, "pipeline": PIPELINE, "seq": seq})
            rows = spark.range(seq, seq + 1).toDF("a").write.format("delta").mode("append")
            rows.options(txnAppId=PIPELINE, txnVersion=str(seq), userMetadata=ours).save(str(two.folder))
    finally:
        for name in conf:
            spark.conf.unset(name)
    names = sorted(path.name for path in (two.folder / "_delta_log").iterdir())
    checkpoints = [name for name in names if ".checkpoint." in name and not name.startswith(".")]
    sidecars = [*(two.folder / "_delta_log").glob("_sidecars/*.parquet")]
    assert {
        "classic": len(checkpoints) == 1 and not sidecars,
        "multipart": len(checkpoints) > 1 and "0000000001." in checkpoints[0],
        "v2 json": checkpoints[0].endswith(".json") and len(sidecars) > 1,
        "v2 parquet": checkpoints[0].endswith(".parquet") and len(sidecars) > 1,
    }[kind], (checkpoints, sidecars)
    found = two.same(Baseline(two.identity(), 2))
    assert (found.version, found.txn, sorted(found.committed)) == (3, 2, [2])
    assert two.same().committed.keys() == set(range(3))


@pytest.mark.spark
def test_a_log_that_spark_cleaned(two, spark):
    names = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
    short = ", ".join(f"'{name}' = 'interval 0 seconds'" for name in names)
    short += ", 'delta.checkpointInterval' = '2'"
    spark.sql(f"CREATE TABLE delta.`{two.folder}` (a BIGINT) USING delta TBLPROPERTIES ({short})")
    for seq in range(3):
        rows = spark.range(seq, seq + 1).toDF("a").write.format("delta").mode("append")
        rows.options(txnAppId=PIPELINE, txnVersion=str(seq)).save(str(two.folder))
        days_ago = time.time() - 3 * 86_400
        for path in (two.folder / "_delta_log").glob("*.json"):
            os.utime(path, (days_ago, days_ago))
    left = [path.name for path in sorted((two.folder / "_delta_log").glob("*.json"))]
    assert f"{0:020}.json" not in left
    found = two.same(Baseline(two.identity(), 2))
    assert (found.version, found.txn) == (3, 2)
    for where, storage in ((two.here, DISK), (two.there, two.storage)):
        with pytest.raises(BatchOutcomeUnknownError):
            probe(where, PIPELINE, Baseline(two.identity(), 0), storage)


def test_an_idle_look_reads_one_commit_and_no_checkpoint(two):
    for seq in range(12):
        two.append(seq)
    two.table().create_checkpoint()

    found = probe(two.there, PIPELINE, Baseline(two.identity(), 11), two.storage)

    assert (found.txn, found.version, found.committed) == (11, 11, {})
    assert two.storage.read_names == [f"{11:020}.crc", f"{11:020}.json"]


def test_an_idle_look_at_a_disk_does_not_open_the_table(two, monkeypatch):
    """That reads all commits since the checkpoint, and each run would do so twice."""
    for seq in range(3):
        two.append(seq)
    baseline = Baseline(two.identity(), 2)
    monkeypatch.delattr(delta_log, "DeltaTable")

    assert probe(two.here, PIPELINE, baseline, DISK).txn == 2


def test_what_came_since_the_record_is_read_and_nothing_else(two):
    for seq in range(5):
        two.append(seq)
    identity = two.identity()
    write_deltalake(str(two.folder), pa.table({"a": [99]}), mode="append")  # of somebody else
    two.append(5)

    found = two.same(Baseline(identity, 4))

    assert (found.txn, found.version, set(found.committed)) == (5, 6, {5})
    two.storage.read_names.clear()
    probe(two.there, PIPELINE, Baseline(identity, 4), two.storage)
    assert two.storage.read_names == [f"{6:020}.crc", f"{5:020}.json", f"{6:020}.json"]


@pytest.mark.parametrize(
    "other",
    [
        {"txnId": "of another commit"},
        {"metadata": {"id": "of another table"}},
        {"setTransactions": None},
        {"setTransactions": []},
        {"setTransactions": [{"appId": "another pipeline", "version": 3}]},
        {"txnId": None},
    ],
)
def test_a_checksum_that_does_not_tell_is_left_alone(two, other):
    for seq in range(3):
        two.append(seq)
    two.checksum(**other)

    two.same(Baseline(two.identity(), 1))

    two.storage.read_names.clear()
    assert probe(two.there, PIPELINE, Baseline(two.identity(), 1), two.storage).txn == 2
    assert f"{0:020}.json" in two.storage.read_names  # the whole log, as there is no checkpoint


def do(two: Two, deed: str, dice: random.Random, seq: int) -> None:
    if deed == "ours" or not two.folder.exists():
        two.append(seq)
    elif deed == "theirs":
        write_deltalake(str(two.folder), pa.table({"a": [-1]}), mode="append")
    elif deed == "delete":
        two.table().delete("a < 0")
    elif deed == "restore" and two.table().version():
        two.table().restore(dice.randrange(two.table().version()))
    elif deed == "property":
        two.table().alter.set_table_properties({"delta.appendOnly": "false"})
    elif deed == "checkpoint":
        two.table().create_checkpoint()
    if dice.random() < 0.8:
        two.checksum()


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.loads) for seed in range(4, 60))]
)
def test_random_histories_are_seen_alike_from_every_record(two, seed):
    """Commits of others, RESTOREs, properties and checkpoints, in any order; sometimes another table."""
    dice = random.Random(seed)
    deeds = ["ours"] * 5 + ["theirs", "delete", "restore", "property", "checkpoint"]
    records = [NO_BASELINE]
    for seq in range(dice.randrange(4, 14)):
        do(two, dice.choice(deeds), dice, seq)
        seen = probe(two.here, PIPELINE, NO_BASELINE, DISK)
        records.append(Baseline(seen.identity, seen.version))
    if seed % 3 == 0:
        shutil.rmtree(two.folder)
        for seq in range(dice.randrange(1, 14)):
            do(two, dice.choice(deeds), dice, seq)

    two.same()
    for record in records:
        two.same_since(record)
