"""A checkpoint that an older version wrote is read whole, stays as it is, and goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.core import records, takeover
from airflow_provider_scope.core.record_text import decode, encode
from airflow_provider_scope.core.records import (
    Acceptance,
    Attempt,
    CommitRecord,
    Pipeline,
    QuarantineUse,
    Return,
    Settlement,
    TableIdentity,
)
from airflow_provider_scope.core.takeover import Decision, Takeover
from tests.support.checkpoint_0_2 import FIXTURE, do_the_deeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.crash.world import MemoryWorld

WRITTEN = {str(path.relative_to(FIXTURE)): path.read_bytes() for path in FIXTURE.rglob("*") if path.is_file()}
DERIVED = ("sources/", "watermark.json")
RECORDS = sorted(name for name in WRITTEN if not name.startswith(DERIVED))
KINDS: dict[str, Any] = {
    "pipeline.json": Pipeline,
    "commits": CommitRecord,
    "accepted": Acceptance,
    "quarantines": QuarantineUse,
    "returned": Return,
    "attempts": Attempt,
    "taken_over": Takeover,
}


def is_derived(name: str) -> bool:
    """Tell what is made of the records: it has another shape today."""
    return name.startswith((*DERIVED, "seen/"))


def left_by(control: Mapping[str, bytes], world: MemoryWorld) -> dict[str, bytes]:
    return {path.removeprefix(f"{world.checkpoint}/"): data for path, data in control.items()}


def test_the_same_deeds_write_the_same_bytes() -> None:
    world = do_the_deeds()
    now = left_by(world.memory.control, world)

    assert sorted(name for name in now if not is_derived(name)) == sorted(RECORDS)
    assert [name for name in RECORDS if now[name] != WRITTEN[name]] == []


def numbers(name: str) -> dict[str, Any]:
    """Give what the name of a record says about its content."""
    folder, _, rest = name.partition("/")
    if folder == "attempts":
        seq, number = rest.split(".")[:2]
        return {"seq": int(seq), "number": int(number)}
    if rest.endswith(".decided"):
        return {"watermark": rest.removesuffix(".decided")}
    return {"seq" if folder == "commits" else "number": int(rest)} if rest else {}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_read_and_would_be_written_as_it_is(name: str) -> None:
    data = WRITTEN[name]
    folder, _, rest = name.partition("/")
    kind = {"settled": Settlement, "decided": Decision}.get(name.rpartition(".")[2], KINDS.get(folder))
    if name.startswith("offsets/"):
        written = records.encode_offset(records.decode_offset(name, data, int(rest)))
    elif name.endswith(".files"):
        digest = name.removeprefix("taken_over/").removesuffix(".files")
        (written,) = takeover.encode_files(takeover.decode_files(name, data, digest))
    else:
        assert kind
        written = encode(decode(kind, name, data, **numbers(name)))

    assert written == data


def test_the_fixture_has_records_of_every_kind() -> None:
    folders = {name.split("/")[0] for name in RECORDS} | {name.rpartition(".")[2] for name in RECORDS}

    assert folders >= {*KINDS, "offsets", "settled", "decided", "files"}
    assert {name for name in WRITTEN if name.endswith(".parquet")}


def test_a_run_goes_on_from_it_and_changes_no_record() -> None:
    world = do_the_deeds()
    world.memory.control = {f"{world.checkpoint}/{name}": data for name, data in WRITTEN.items()}
    rows = world.rows()

    report = world.run()
    again = world.run()
    after = left_by(world.memory.control, world)

    assert (report.files, again.files) == (2, 0)  # of the open batch, and the new one
    assert world.rows() - rows == {(f"{world.root}/new.parquet", 0, 1): 1}
    assert {name: after[name] for name in RECORDS} == {name: WRITTEN[name] for name in RECORDS}
    assert sorted(name for name in set(after) - set(WRITTEN) if not is_derived(name)) == [
        "commits/00000000000000000006",
        "commits/00000000000000000007",
        "offsets/00000000000000000007",
    ]


@pytest.mark.parametrize(
    ("kind", "data", "record"),
    [
        (
            Pipeline,
            b'{"format":1,"pipeline":"0b5f","table":null,"table_version":null}\n',
            Pipeline(pipeline="0b5f", table=None),
        ),
        (
            CommitRecord,
            (
                b'{"abandoned":false,"committed_at_ms":5,"files":3,"format":1,"rows":null,"seq":0,"size_bytes":4,'
                b'"table":{"restore_version":null,"table_id":"7c1d"},"table_version":1,"written_bytes":null}\n'
            ),
            CommitRecord(
                seq=0, table=TableIdentity("7c1d"), table_version=1, files=3, size_bytes=4, committed_at_ms=5
            ),
        ),
    ],
)
def test_a_key_that_the_first_versions_did_not_write_may_be_missing(
    kind: Any, data: bytes, record: Any
) -> None:
    assert decode(kind, "r", data) == record
