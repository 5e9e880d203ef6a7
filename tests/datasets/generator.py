"""Sources that nobody tuned: schema, rows, files, names and format, all from one number."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import random
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

from tests.datasets import arrow_files, avro_files, csv_files, json_files, kinds, names
from tests.datasets.csv_files import Dialect
from tests.datasets.kinds import Kind

_SPLIT = {"csv", "json", "text", "avro"}
"""Formats of which Spark reads a file in any parts."""
FORMATS = ("csv", "csv", "csv", "json", "json", "parquet", "parquet", "orc", "text")


@dataclass(frozen=True)
class File:
    """A file, and the rows that are in it, in the order of the columns of the source."""

    name: str
    content: bytes
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """What a user has and writes, and what the table must hold then."""

    seed: int | None
    """None if the source is not a generated one."""
    format: str
    columns: list[tuple[str, Kind]]
    files: list[File]
    declared: bool = True
    options: dict[str, str] = field(default_factory=dict)
    picked: list[tuple[int, str]] | None = None
    """Index and new name of each column that the SELECT takes; None is ``SELECT *``."""
    with_uri: bool = False
    split_bytes: int | None = None
    """Spark reads the files in parts of so many bytes."""
    dialect: Dialect = field(default_factory=Dialect)

    @property
    def source_columns(self) -> dict[str, str] | None:
        """Return ``FileSource.columns``."""
        return {name: kind.ddl for name, kind in self.columns} if self.declared else None

    @property
    def sql(self) -> str:
        """Return the SELECT."""
        listed = "*"
        if self.picked is not None:
            listed = ", ".join(f"{tick(self.columns[i][0])} AS {tick(new)}" for i, new in self.picked)
        return f"SELECT {listed}{', source_file_uri' if self.with_uri else ''} FROM @data"

    @property
    def selected(self) -> list[tuple[str, Kind]]:
        """Return the columns of the table."""
        chosen = self.columns
        if self.picked is not None:
            chosen = [(new, self.columns[i][1]) for i, new in self.picked]
        return [*chosen, *([("source_file_uri", Kind("string"))] if self.with_uri else [])]

    def rows(self, file: File, uri: str) -> list[tuple[Any, ...]]:
        """Return the rows that a file adds to the table."""
        tail = (uri,) if self.with_uri else ()
        if self.picked is None:
            return [(*row, *tail) for row in file.rows]
        return [(*(row[i] for i, _ in self.picked), *tail) for row in file.rows]

    def describe(self) -> str:
        """Return all that is needed to see what was loaded."""
        replay = f"replay: DATA_SEED={self.seed} DATA_CASES=1 .venv/bin/pytest -m slow tests/datasets"
        lines = [
            *([] if self.seed is None else [replay]),
            f"format={self.format!r} options={self.options!r} split_bytes={self.split_bytes}",
            f"columns={self.source_columns!r}",
            f"really={[(name, kind.ddl) for name, kind in self.columns]!r}"[:2000],
            f"sql={self.sql!r}",
        ]
        for file in self.files:
            lines.append(f"file {file.name!r}: {len(file.rows)} rows, {len(file.content)} bytes")
            lines.append(f"    {_shown(file)!r}")
        return "\n".join(lines)


def _shown(file: File) -> bytes:
    try:
        return unpacked(file)[:400]
    except (EOFError, OSError, zlib.error):  # it is meant to be broken
        return file.content[:100]


def tick(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def case(seed: int, *, kind: str | None = None) -> Case:
    """Return the source of a seed; ``kind`` fixes its format."""
    rng = random.Random(f"{seed}/{kind}")
    chosen = kind or rng.choice(FORMATS)
    made = {"csv": _csv, "json": _json, "parquet": _arrow, "orc": _arrow, "text": _text, "avro": _avro}[
        chosen
    ](rng, seed, chosen)
    refused = any(c in name for name, _ in made.columns for c in names.REFUSED)
    made = replace(
        made,
        with_uri=rng.random() < 0.15,
        split_bytes=rng.choice((None, None, None, 997)) if chosen in _SPLIT else None,
    )
    if refused or rng.random() < 0.25:
        indexes = rng.sample(range(len(made.columns)), rng.randint(1, len(made.columns)))
        made = replace(made, picked=[(i, f"c{n}_{i}") for n, i in enumerate(indexes)])
    return made


def _schema(rng: random.Random, make: Any) -> list[tuple[str, Kind]]:
    count = rng.choice((1, 2, 3, 4, 5, 7, 12, 40))
    return [(name, make(rng)) for name in names.columns(rng, count)]


def _rows(
    rng: random.Random, columns: list[tuple[str, Kind]], *, breaks: bool, nulls: float
) -> list[tuple[Any, ...]]:
    count = rng.choice((0, 1, 1, 2, 3, 10, 40))
    return [tuple(kinds.value(k, rng, breaks=breaks, nulls=nulls) for _, k in columns) for _ in range(count)]


def _count(rng: random.Random) -> int:
    return rng.choice((1, 2, 3, 5, 8, 12))


def _csv(rng: random.Random, seed: int, chosen: str) -> Case:
    how = csv_files.dialect(rng)
    columns = _schema(rng, kinds.scalar)
    # An empty line is no row, so a table of one column has no way to say NULL but quotes.
    nulls = 0.0 if len(columns) == 1 else 0.15
    files = []
    for name in names.files(rng, _count(rng), ".csv"):
        rows = _rows(rng, columns, breaks=how.multiline, nulls=nulls)
        files.append(packed(rng, name, csv_text(columns, rows, how, rng).encode(), rows))
    files = [f for f in files if f.content] or [
        packed(rng, "a.csv", csv_text(columns, [], how, rng).encode(), [])
    ]
    return Case(seed, chosen, columns, files, options=how.options, dialect=how)


def csv_text(
    columns: list[tuple[str, Kind]], rows: list[tuple[Any, ...]], how: Dialect, rng: random.Random
) -> str:
    """Return rows as CSV; the last line has an end or not."""
    lines = []
    if how.header:
        lines.append(csv_files.record([header_field(name, how, rng) for name, _ in columns], how))
    for row in rows:
        fields = [csv_files.field(v, k, how, rng) for v, (_, k) in zip(row, columns, strict=True)]
        lines.append(csv_files.record(fields, how))
    text = "".join(lines)
    return text.removesuffix(how.line_end) if rng.random() < 0.2 else text


def header_field(name: str, how: Dialect, rng: random.Random) -> str:
    """Return a name as it stands in the first line."""
    needs = any(c in name for c in (how.separator, how.quote, "\n")) or name != name.strip() or name[0] == "#"
    return csv_files.quoted(name, how) if needs or rng.random() < 0.2 else name


def _json(rng: random.Random, seed: int, chosen: str) -> Case:
    columns = _schema(rng, lambda r: kinds.nested(r, r.choice((0, 0, 2)), binary=True))
    multiline = rng.random() < 0.3
    files = []
    for name in names.files(rng, _count(rng), ".json"):
        rows = _rows(rng, columns, breaks=True, nulls=0.15)
        objects = [json_object(columns, row, rng) for row in rows]
        end = rng.choice(("\n", "\n", "\r\n"))
        text = json_files.document(objects, rng) if multiline else "".join(f"{o}{end}" for o in objects)
        # Of compressed documents that are read as a whole, the numbers would be rounded: they are refused.
        files.append(File(name, text.encode(), rows) if multiline else packed(rng, name, text.encode(), rows))
    files = [f for f in files if f.content] or [packed(rng, "a.json", b"\n" if not multiline else b"[]", [])]
    return Case(seed, chosen, columns, files, options={"multiLine": "true"} if multiline else {})


def json_object(columns: list[tuple[str, Kind]], row: tuple[Any, ...], rng: random.Random) -> str:
    """Return a row as an object."""
    named = zip((name for name, _ in columns), row, strict=True)
    return json_files.members(json_files.present(named, [k for _, k in columns], rng), rng)


def _arrow(rng: random.Random, seed: int, chosen: str) -> Case:
    columns = _schema(rng, lambda r: kinds.nested(r, r.choice((0, 0, 2)), binary=True))
    if chosen == "orc":
        # Spark cuts a name of ORC at a back quote, so that such columns are refused.
        columns = [(n, k) for n, k in columns if "`" not in n] or [("a", Kind("int"))]
    declared = rng.random() < 0.7
    files = []
    for name in names.files(rng, _count(rng), f".{chosen}"):
        rows = _rows(rng, columns, breaks=True, nulls=0.15)
        if chosen == "orc":
            rows = [tuple(_of_orc(value) for value in row) for row in rows]
        data = arrow_files.table(columns, rows)
        if declared:
            data = data.select(rng.sample(data.column_names, data.num_columns))
        if chosen == "orc":
            content = arrow_files.orc(data, rng)
            if not arrow_files.is_what_was_written(content, data):
                continue  # Arrow itself mixes up the values of structs in structs that are NULL
        else:
            version = rng.choice(("1.0", "2.4", "2.6"))
            shaped = arrow_files.other_shape(data, rng, nanoseconds=version == "2.6")
            content = arrow_files.parquet(shaped, rng, version=version)
        files.append(File(name, content, rows))
    files = files or [File("none.orc", arrow_files.orc(arrow_files.table(columns, []), rng), [])]
    return Case(seed, chosen, columns, files, declared=declared)


def _avro(rng: random.Random, seed: int, chosen: str) -> Case:
    made = [
        avro_files.of_avro(kinds.nested(rng, rng.choice((0, 0, 2)), binary=True))
        for _ in range(rng.choice((1, 2, 5, 12, 40)))
    ]
    columns = [(f"c{number}_", kind) for number, kind in enumerate(made)]
    files = []
    for name in names.files(rng, _count(rng), ".avro"):
        rows = _rows(rng, columns, breaks=True, nulls=0.15)
        files.append(File(name, avro_files.file(columns, rows, rng), rows))
    return Case(seed, chosen, columns, files, declared=rng.random() < 0.7)


def _of_orc(value: Any) -> Any:
    """Return a value that Arrow can write and read as ORC, and that is not refused.

    0.0 for -0.0: where all of a stripe are zeros, ORC's reader gives each the sign of the first. Times that
    nanoseconds hold, before 1970 without fractions of a second, which Arrow writes as no other reads them;
    and no days before 1582-10-15: Arrow does not say in which calendar they are.
    """
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dt.datetime):
        if not 1678 <= value.year < 2262:
            value = value.replace(year=1883, month=11, day=18)
        return value if value.year >= 1970 else value.replace(microsecond=0)
    if isinstance(value, dt.date) and value.year < 1583:
        return dt.date(1582, 10, 15)
    if isinstance(value, list | tuple):
        return type(value)(_of_orc(one) for one in value)
    if isinstance(value, dict):
        return {name: _of_orc(one) for name, one in value.items()}
    return value


def _text(rng: random.Random, seed: int, chosen: str) -> Case:
    columns = [("value", Kind("string"))]
    files = []
    for name in names.files(rng, _count(rng), ".txt"):
        lines = [kinds.text(rng, breaks=False) for _ in range(rng.choice((1, 2, 40)))]
        end = rng.choice(("\n", "\r\n"))
        text = "".join(f"{line}{end}" for line in lines)
        files.append(packed(rng, name, text.encode(), [(line,) for line in lines]))
    return Case(seed, chosen, columns, files, declared=rng.random() < 0.5)


def packed(rng: random.Random, name: str, content: bytes, rows: list[tuple[Any, ...]]) -> File:
    """Compress some of the files, as their names then say."""
    match rng.choice((None, None, None, None, "gz", "gz in two", "bz2", "deflate")):
        case "gz":
            return File(f"{name}.gz", gzip.compress(content, mtime=0), rows)
        case "gz in two":  # what `cat a.gz b.gz` gives, and parallel compressors
            cut = len(content) // 2
            return File(f"{name}.gz", gzip.compress(content[:cut]) + gzip.compress(content[cut:]), rows)
        case "bz2":
            return File(f"{name}.bz2", bz2.compress(content), rows)
        case "deflate":
            return File(f"{name}.deflate", zlib.compress(content), rows)
    return File(name, content, rows)


def unpacked(file: File) -> bytes:
    """Return the bytes inside of a compressed file."""
    if file.name.endswith(".gz"):
        return gzip.decompress(file.content)
    if file.name.endswith(".bz2"):
        return bz2.decompress(file.content)
    if file.name.endswith(".deflate"):
        return zlib.decompress(file.content)
    return file.content


def repacked(file: File, content: bytes) -> File:
    """Return a file with other bytes inside of the same compression."""
    if file.name.endswith(".gz"):
        content = gzip.compress(content)
    elif file.name.endswith(".bz2"):
        content = bz2.compress(content)
    elif file.name.endswith(".deflate"):
        content = zlib.compress(content)
    return replace(file, content=content)
