"""Where a log says that new versions hold no row beyond a cursor, there is none."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_scope.delta import commit as delta_commit
from airflow_provider_scope.sources.cursor import newer
from airflow_provider_scope.sources.cursor.spec import Cursor
from airflow_provider_scope.sources.cursor.state import CursorState

if TYPE_CHECKING:
    from pathlib import Path

TYPES = {"bigint": pa.int64(), "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC")}


def value(some: random.Random, kind: str) -> Any:
    if kind == "bigint":
        return some.choice([some.randint(-5, 5), -(2**63), 2**63 - 1])
    if kind == "date":
        return date(1, 1, 1) + timedelta(some.choice([0, 738000 + some.randint(-3, 3), 3652058]))
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=some.randint(-2500, 2500))


def rows(some: random.Random, kind: str, column: str, nulls: float) -> pa.Table:
    values = [None if some.random() < nulls else value(some, kind) for _ in range(4)]
    return pa.table({"z": [1] * 4, column: pa.array(values, TYPES[kind])})


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("func", ["max", "min"])
def test_what_the_log_says_is_so(tmp_path: Path, kind: str, func: str) -> None:
    said = 0
    for seed in range(40):
        some, table = random.Random(seed), str(tmp_path / str(seed))
        column, missing = some.choice(["n", "A b", "x.y", "Ünï"]), some.choice(["raise", "exclude"])
        first = rows(some, kind, column, 0)
        write_deltalake(table, first)
        last = (max if func == "max" else min)(first[column].to_pylist())
        there = []
        for _ in range(some.randint(1, 3)):
            more = rows(some, kind, column, some.choice([0, 0, 0.4]))
            if some.random() < 0.7:
                is_old = [
                    v is None or (v < last if func == "max" else v > last) for v in more[column].to_pylist()
                ]
                more = more.filter(pa.array(is_old))
            write_deltalake(table, more, mode="append")
            there += more[column].to_pylist()
            if some.random() < 0.3:
                DeltaTable(table).optimize.compact()
        text = last.isoformat() if kind == "timestamp" else str(last)
        state = CursorState(column=column, kind=kind, last=text)
        files = sorted((tmp_path / str(seed)).glob("_delta_log/*.json"))[1:]
        commits = [delta_commit.parse(version, file.read_bytes()) for version, file in enumerate(files, 1)]
        if newer.holds_none(
            commits, Cursor(column=column, last_value_func=func, on_cursor_value_missing=missing), state, None
        ):
            said += 1
            assert not [v for v in there if v is not None and (v >= last if func == "max" else v <= last)], (
                seed
            )
            assert missing == "exclude" or None not in there, seed
    assert said


ZONES = ["America/Los_Angeles", "Asia/Kolkata", "Africa/Monrovia", "Europe/Amsterdam", "UTC"]
DECADES = [1700, 1880, 1883, 1900, 1935, 1960, 1971, 1972, 1973, 2020]


def as_delta_3_2_writes(moment: datetime, zone: str) -> str:
    """Cut below a millisecond, and the seconds of the zone's offset."""
    local = moment.astimezone(ZoneInfo(zone))
    text = local.isoformat(timespec="milliseconds")
    date_and_time, offset = text[:23], text[23:]
    return date_and_time + offset[:6]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("func", ["max", "min"])
def test_what_another_writer_cut_is_never_taken_for_old(zone: str, func: str) -> None:
    some, said = random.Random(f"{zone} {func}"), 0
    furthest = max if func == "max" else min
    for _ in range(3000):
        year = some.choice(DECADES)
        begin = datetime(year, some.randint(1, 12), 18, 19, 56, tzinfo=UTC)
        near = [begin + timedelta(microseconds=some.randint(-90_000_000, 90_000_000)) for _ in range(3)]
        values = [*near, datetime(some.choice(DECADES), 1, 1, tzinfo=UTC)] if some.random() < 0.3 else near
        last = begin + timedelta(microseconds=some.randint(-200_000_000, 200_000_000))
        told = as_delta_3_2_writes(furthest(values), zone)
        stats = {"numRecords": len(values), "nullCount": {"n": 0}}
        stats["maxValues" if func == "max" else "minValues"] = {"n": told}
        commit = json.dumps({"add": {"path": "f", "dataChange": True, "stats": json.dumps(stats)}})
        state = CursorState(column="n", kind="timestamp", last=f"{last:%Y-%m-%d %H:%M:%S.%f}Z")
        rule = Cursor(column="n", last_value_func=func)
        if newer.holds_none([delta_commit.parse(1, commit.encode())], rule, state, None):
            said += 1
            assert furthest(values) < last if func == "max" else furthest(values) > last
    assert said
