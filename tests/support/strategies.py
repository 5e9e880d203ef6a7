"""Values that hypothesis draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from airflow_provider_scope.expectations import RuleCount
from airflow_provider_scope.protocol.bad_records import Quarantined
from airflow_provider_scope.protocol.records import (
    Acceptance,
    Attempt,
    CommitRecord,
    OffsetEntry,
    Pipeline,
    QuarantineUse,
    Settlement,
    TableIdentity,
)
from airflow_provider_scope.protocol.takeover import Decision, Takeover
from airflow_provider_scope.values import FileEntry, FileSlice, Position

if TYPE_CHECKING:
    from collections.abc import Callable

UTF8 = st.characters(codec="utf-8")
TEXT = st.text(UTF8, max_size=20)
PART = st.text(UTF8.filter(lambda c: c not in "/\x00"), min_size=1, max_size=8)
COUNT = st.integers(0, 2**63 - 1)
NUMBER = st.integers(-(2**63), 2**63 - 1)
MAYBE_COUNT = st.none() | COUNT

# Few different values, so that ties, clashes and streams beside their folders do happen.
NAMES = st.sampled_from(
    ["a", "b", "a.ss", "b.ss", "_a", ".a", "_x=1", "a:b", "a b", "a._COPYING_", "caf\udce9", "é\u2028"]
)
FOLDERS = st.lists(st.sampled_from(["a", "b", "_t", "a.ss", "x"]), max_size=3)
SMALL_TIMES = st.integers(-1, 6)
SMALL_SIZES = st.integers(0, 4)


@st.composite
def small_files(draw: Callable[..., object]) -> FileEntry:
    """Draw a file of a small world."""
    path = "/".join(["file:///in", *draw(FOLDERS), draw(NAMES)])  # type: ignore[misc, list-item]
    return FileEntry(draw(SMALL_TIMES), path, draw(SMALL_SIZES))  # type: ignore[arg-type]


LISTINGS = st.lists(small_files(), max_size=25, unique_by=lambda file: file.path)

FILES = st.builds(
    FileEntry,
    modified_ms=NUMBER,
    path=st.lists(PART, min_size=1, max_size=4).map(lambda parts: "file:///" + "/".join(parts)),
    size_bytes=COUNT,
    created_ms=st.none() | NUMBER,
    content_md5=st.none() | TEXT,
)
IDENTITIES = st.builds(TableIdentity, TEXT, MAYBE_COUNT)
PIPELINES = st.builds(
    Pipeline,
    pipeline=TEXT,
    table=st.none() | IDENTITIES,
    table_version=MAYBE_COUNT,
    format=st.just(1),
)
COMMITS = st.builds(
    CommitRecord,
    seq=COUNT,
    table=IDENTITIES,
    table_version=COUNT,
    files=COUNT,
    size_bytes=COUNT,
    committed_at_ms=NUMBER,
    rows=MAYBE_COUNT,
    written_bytes=MAYBE_COUNT,
    abandoned=st.booleans(),
    quarantined=st.dictionaries(
        TEXT, st.builds(Quarantined, out_of=COUNT, rules=st.dictionaries(TEXT, COUNT, max_size=3)), max_size=3
    ),
    warned=st.dictionaries(TEXT, st.builds(RuleCount, count=COUNT, out_of=COUNT), max_size=3),
    rescued=st.dictionaries(TEXT, COUNT, max_size=3),
    changes=st.dictionaries(TEXT, COUNT, max_size=3),
    columns=st.none() | st.text(UTF8, min_size=1, max_size=20),
    state=st.none() | st.text(UTF8, min_size=1, max_size=20),
    format=st.just(1),
)
ACCEPTANCES = st.builds(
    Acceptance,
    number=COUNT,
    after_commit=NUMBER,
    table=IDENTITIES,
    table_version=NUMBER,
    rolled_back=st.lists(COUNT, max_size=4).map(tuple),
    format=st.just(1),
)
OFFSETS = st.builds(
    OffsetEntry,
    seq=COUNT,
    mode=st.sampled_from(["append", "overwrite"]),
    slice=st.builds(
        FileSlice,
        files=st.lists(FILES, max_size=6).map(tuple),
        highest=st.none() | st.builds(Position, NUMBER, TEXT),
    ),
    refresh_start=MAYBE_COUNT,
    overwrite_start=MAYBE_COUNT,
    where=st.none() | TEXT,
    takeovers=COUNT,
    void_watermark=st.none() | st.text(UTF8, min_size=1, max_size=20),
)

ATTEMPTS = st.builds(
    Attempt,
    seq=COUNT,
    number=COUNT,
    table_version=NUMBER,
    void=st.booleans(),
    account=TEXT,
    format=st.just(1),
)
SETTLEMENTS = st.builds(
    Settlement, seq=COUNT, number=COUNT, committed=st.booleans(), table_version=NUMBER, format=st.just(1)
)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
QUARANTINE_USES = st.builds(QuarantineUse, number=COUNT, table=TEXT, format=st.just(1))
TAKEOVERS = st.builds(
    Takeover,
    number=COUNT,
    seq=COUNT,
    watermark=TEXT,
    batch_id=COUNT,
    modified_time=TEXT,
    floor_ms=st.none() | NUMBER,
    is_recorded=st.booleans(),
    missing=COUNT,
    at_floor=TEXTS,
    files=COUNT,
    lists=TEXTS,
    store=TEXT,
    taken_at_ms=NUMBER,
    format=st.just(1),
)
DECISIONS = st.builds(Decision, watermark=TEXT, loaded=st.booleans(), format=st.just(1))
RECORDS = st.one_of(
    PIPELINES, COMMITS, ACCEPTANCES, ATTEMPTS, SETTLEMENTS, QUARANTINE_USES, TAKEOVERS, DECISIONS
)
