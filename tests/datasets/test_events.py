"""A folder of real events that drift, loaded in twenty runs of one task: each value is in one place.

They are webhooks of GitHub and of five releases of its server (npm), and events of AWS (PyPI): hundreds of
kinds, whose keys come, go and change type from one release to the next, and differ in letter case alone.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.support import npm, pypi, warm
from tests.support.rescued_text import Number, compact, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.compiled, pytest.mark.vega]

RUNS = 20
KEY = "delivery"
HINTS = {
    KEY: "bigint",
    "id": "bigint",
    "number": "int",
    "forced": "boolean",
    "starred_at": "timestamp",
    "effective_date": "date",
    "installation": "struct<id: bigint, node_id: string>",
    "commits": "array<string>",
    "version": "decimal(4,1)",
}
"""What somebody knows of the first events: some of the later ones have other types, or keys that it lacks."""
CUT = 7
"""The last line of each file with such a number is cut: its writer died."""

Event = dict[str, Any]
Place = tuple[str, str]
"""A file, and the number that was delivered."""


def releases() -> Iterator[tuple[str, list[Event]]]:
    """Give the events of each kind and release in their order, under the name of a file."""
    payloads = npm.install("@octokit/webhooks-examples", "7.6.1")
    for folder in ("ghes-31", "ghes-32", "ghes-33", "ghes-34", "ghes-35", "api.github.com"):
        for kind in parsed((payloads / folder / "index.json").read_bytes()):
            yield f"github/{folder}/{kind['name']}.json", kind["examples"]
    samples = pypi.fetch("aws-sam-cli", "1.170.0") / "samcli/lib/generated_sample_events/events"
    for path in sorted(samples.rglob("*.json")):
        yield f"aws/{path.relative_to(samples)}", [parsed(path.read_bytes())]


def parsed(data: bytes | str) -> Any:
    return json.loads(data, parse_int=Number, parse_float=Number)


def events() -> list[tuple[str, list[Event]]]:
    """Number the events as they are delivered; each 50th comes once more at the end."""
    files = [*releases()]
    aws = [file for file in files if file[0].startswith("aws")]
    github = [file for file in files if file not in aws]
    step = len(github) // len(aws)
    mixed = []
    for place, file in enumerate(github):
        mixed += [file, *(aws[place // step : place // step + 1] if place % step == 0 else [])]
    numbered, again, number = [], [], 0
    for name, kind in mixed:
        alike = []
        for event in kind:
            number += 1
            alike.append({KEY: Number(number), **event})
            if number % 50 == 0:
                again.append({KEY: Number(number), "redelivered": True, **event})
        numbered.append((name, alike))
    return [*numbered, ("github/again.json", again)]


def is_of(kind: str, value: Any) -> bool:
    """Return whether a value that is not null is one of a type, as the page about rescued data says."""
    match kind:
        case "bigint" | "int":
            return isinstance(value, Number) and re.fullmatch(r"-?\d+", value) is not None
        case "decimal(4,1)":
            return isinstance(value, str) and re.fullmatch(r"\d{1,3}(\.\d0*)?", value) is not None
        case "boolean":
            return isinstance(value, bool)
        case "timestamp":
            return (
                isinstance(value, str)
                and re.fullmatch(r"[-\d]{10}T[:\d]{8}(Z|[-+]\d\d:\d\d)", value) is not None
            )
        case "date":
            return isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) is not None
        case "struct<id: bigint, node_id: string>":
            return isinstance(value, dict) and not value.keys() - {"id", "node_id"}
        case "array<string>":
            return isinstance(value, list)
    return True


def typed_text(value: Any) -> str:
    """Write a value of the table, or the one that a text stands for, in one form."""
    if isinstance(value, dict):
        return json.dumps({name: str(item) for name, item in value.items() if item is not None})
    if isinstance(value, list):
        return json.dumps([without_blanks(text_of(item)) for item in value])
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return without_blanks(str(value))


def without_blanks(text: str) -> str:
    """Write a text that is JSON in one form: in a column, it has the blanks that it has in the file."""
    try:
        return compact(parsed(text)) if text[:1] in ("{", "[") else text
    except ValueError:
        return text


def expected(kind: str, value: Any) -> str:
    """Write the value of an event as ``typed_text`` writes that of its column."""
    match kind:
        case "timestamp":
            return typed_text(dt.datetime.fromisoformat(value))
        case "decimal(4,1)":
            return f"{float(value):.1f}"
        case "struct<id: bigint, node_id: string>" | "array<string>":
            return typed_text(value)
        case "boolean":
            return str(value)
    return without_blanks(text_of(value))


class Model:
    """What is to become of each event, by Python alone."""

    def __init__(self) -> None:
        self.spelling = {name.lower(): name for name in HINTS}
        self.rows: dict[Place, tuple[Any, ...]] = {}
        self.bad: Counter[Place] = Counter()
        self.rescued: Counter[str] = Counter()

    def take(self, path: str, lines: list[str]) -> None:
        whole = []
        for line in lines:
            try:
                whole.append(parsed(line))
            except ValueError:
                self.bad[path, line] += 1
        for _, key in sorted((place, key) for event in whole for place, key in enumerate(event)):
            self.spelling.setdefault(key.lower(), key)
        for event in whole:
            columns, rescued = {}, {}
            for key, value in event.items():
                kind = HINTS.get(key, "string")
                if value is None:
                    continue
                if self.spelling[key.lower()] == key and is_of(kind, value):
                    columns[key] = expected(kind, value)
                else:
                    rescued[key] = without_blanks(text_of(value))
            self.rescued.update([*rescued])
            self.rows[path, event[KEY]] = (columns, rescued)


def loaded(table: str) -> list[tuple[Place, tuple[Any, ...]]]:
    rows = []
    for row in DeltaTable(table).to_pyarrow_table().to_pylist():
        path, rescued = row.pop("source_file_uri"), json.loads(row.pop("_rescued") or "{}")
        assert rescued.pop("_file_path", path) == path
        columns = {name: typed_text(value) for name, value in row.items() if value is not None}
        rescued = {name: without_blanks(text) for name, text in rescued.items()}
        rows.append(((path, columns[KEY]), (columns, rescued)))
    return rows


@pytest.mark.parametrize("write", ["append", "merge"])
def test_each_value_of_real_events_is_in_a_column_or_rescued_or_in_the_quarantine(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    warm.use(monkeypatch, spark)
    by_key = {"kind": "merge", "strategy": "upsert", "primary_key": KEY}
    pipe = warm.Pipe(
        tmp_path,
        {
            "source": {
                "roots": str(tmp_path / "landing"),
                "format": "json",
                "columns": "infer",
                "schema_hints": HINTS,
                "rescued_data_column": "_rescued",
                "bad_records": "quarantine",
            },
            "table": {"schema_evolution": "add"},
            "sql": "SELECT *, source_file_uri FROM @data",
            "write": by_key if write == "merge" else "append",
        },
    )
    files, model = events() if write == "append" else events()[-80:], Model()
    old = time.time() - 3600
    for run in range(RUNS):
        for number in range(run * len(files) // RUNS, (run + 1) * len(files) // RUNS):
            name, alike = files[number]
            lines = [json.dumps(event) for event in json.loads(compact(alike))]
            if number % CUT == 0 and number:
                lines[-1] = lines[-1][: len(lines[-1]) // 2]
            path = tmp_path / "landing" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines))
            os.utime(path, (old + number, old + number))
            model.take(f"file://{path}", lines)

        report = pipe.run()

        assert len(report.batches) == 1, run

    rows = loaded(str(pipe.table))
    wanted = model.rows
    if write == "merge":
        newest = {key: path for path, key in wanted}
        wanted = {(path, key): row for (path, key), row in wanted.items() if newest[key] == path}
    assert len(rows) == len(wanted)
    for place, row in rows:
        assert row == wanted[place], place
    aside = DeltaTable(f"{pipe.table}_quarantine").to_pyarrow_table().to_pylist()
    records = Counter((row["file"], row["raw"]) for row in aside if row["record"])
    assert records == model.bad
    # The model itself has seen what this is about.
    if write == "append":
        assert {"records", "Name", "id", "version", "installation"} <= {*model.rescued}
        assert len(model.spelling) > 200
    assert len(model.bad) > 10
