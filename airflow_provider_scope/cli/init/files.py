"""What the files of a folder are: their format, and what a first run would refuse about them."""

from __future__ import annotations

import io
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import orc, parquet

from airflow_provider_scope.cli.init import samples
from airflow_provider_scope.cli.init.dag_file import KEPT, Folder, check_distinct
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import BadFileError, InputError, SourceEmptyError
from airflow_provider_scope.sources.files.discovery import Rules, candidates, is_hidden
from airflow_provider_scope.sources.files.spec import SAFETY_BUFFER_SECONDS, FileSource
from airflow_provider_scope.stores.local import SCHEME, local_path
from airflow_provider_scope.values import base_name, counted, printable, some_names, usual_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_scope.sources.files.discovery import Candidates
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import FileEntry

FORMATS = ("csv", "json", "parquet", "orc", "text")
_OTHER_NAMES = {"csv": r"(?i)\.(tsv|tab|psv)(\.gz|\.gzip|\.bz2|\.deflate)?$"}
"""Format -> names that are not its usual ones, and are no other format's either."""
_SAMPLED = 5
_HEAD_BYTES = 8 * 1024**2
"""What is looked at of a file."""
_WHOLE_BYTES = 64 * 1024**2
"""Of another store than a disk, a file is read as a whole, if it is not larger than this."""


def folder_of(root: str, uri: str, storage: Storage, wanted: str | None) -> Folder:
    listing = list(storage.walk(uri))
    kind, pattern = _format_of(uri, listing, wanted)
    spec = FileSource(roots=root, format=kind, patterns=pattern, safety_buffer_seconds=0)  # type: ignore[arg-type] # of FORMATS
    now_ms = clock.now_ms()
    files = candidates(listing, Rules.of(spec, now_ms), [uri])
    if not files.files:
        reasons = "; ".join(_left_out(files, listing))
        raise SourceEmptyError(
            f"None of the {counted(len(listing), 'file')} in {root} can be loaded: {reasons}.",
            kept=KEPT,
            do="put a file of the source there, and run the command again",
        )
    young_ms = now_ms - SAFETY_BUFFER_SECONDS * 1000
    is_local = uri.startswith(SCHEME)
    sampled = _sampled([file for file in files.files if is_local or file.size_bytes <= _WHOLE_BYTES])
    if not sampled:
        raise InputError(
            f"All files in {root} are larger than {_WHOLE_BYTES:,} bytes, which is the most that is read.",
            kept=KEPT,
            do="put a smaller file beside them, and run the command again",
        )
    return Folder(
        root=root,
        format=kind,
        files=len(files.files),
        size_bytes=sum(file.size_bytes for file in files.files),
        newest=printable(base_name(files.files[-1].path)),
        newest_ms=files.files[-1].modified_ms,
        young=sum(file.modified_ms > young_ms for file in files.files),
        pattern=pattern,
        left_out=tuple(_left_out(files, listing)),
        folders=_folders(uri, files.files),
        **_LOOKS[kind](storage, sampled),
    )


def _format_of(uri: str, listing: Sequence[FileEntry], wanted: str | None) -> tuple[str, str | None]:
    """Find the format of files by their names.

    :return: And the pattern of their names, if these are not the usual ones.
    """
    parts = [file.path[len(uri) + 1 :].split("/") for file in listing]
    names = [path[-1] for path in parts if not any(map(is_hidden, path))]
    usual = [(kind, usual_pattern(kind), None) for kind in FORMATS]
    patterns = [*usual, *((kind, pattern, pattern) for kind, pattern in _OTHER_NAMES.items())]
    counts = {
        (kind, named_so): count
        for kind, pattern, named_so in patterns
        if (count := sum(bool(re.search(pattern, name)) for name in names)) and wanted in (None, kind)
    }
    if len(counts) > 1 and wanted is None:
        counts = {key: count for key, count in counts.items() if key[0] != "text"}  # such as a readme.txt
    if len(counts) == 1:
        return next(iter(counts))
    if not names:
        raise SourceEmptyError(
            f"The folder {uri} holds no file.",
            kept=KEPT,
            do="put a file of the source there, and run the command again: the Dag file says what it saw",
        )
    shown = ", ".join(
        f"{counts[kind, named_so]:,} {kind} such as {next(filter(re.compile(pattern).search, names))!r}"
        for kind, pattern, named_so in patterns
        if (kind, named_so) in counts
    )
    if counts:
        raise InputError(
            f"The folder {uri} holds files of several formats or endings: {shown}.",
            kept=KEPT,
            do="choose one of them with --format, such as `--format "
            f"{next(iter(counts))[0]}`; or name a folder with files of one kind. Each needs its own table",
        )
    raise InputError(
        f"No file in {uri} has a name of {wanted or 'a known format'}: {some_names(sorted(names), 3)}.",
        kept=KEPT,
        do="rename the files, or write the Dag file yourself: FileSource(format=…, patterns=…)",
    )


def _left_out(files: Candidates, listing: Sequence[FileEntry]) -> Iterator[str]:
    for reason, count in sorted(files.left_out.counts.items()):
        shown = ", ".join(map(repr, map(base_name, files.left_out.names.get(reason, [])[:1])))
        yield f"{counted(count, 'file')}, {reason}" + (f", such as {shown}" if shown else "")
    others = len(listing) - files.matched
    if others:
        yield f"{counted(others, 'file')} with other names"


def _sampled(files: Sequence[FileEntry]) -> list[FileEntry]:
    """Choose files to be looked into: the newest, the largest, and some between."""
    if not files:
        return []
    between = files[:: max(1, len(files) // (_SAMPLED - 2))][: _SAMPLED - 2]
    largest = max(files, key=lambda file: file.size_bytes)
    return list({file.path: file for file in (files[-1], largest, *between)}.values())


def _folders(root: str, files: Sequence[FileEntry]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Find the columns that are in the paths of all files, as in ``d=2026-11-25``."""
    values: dict[str, dict[str, None]] = {}
    counts: Counter[str] = Counter()
    for file in files:
        for part in file.path[len(root) :].split("/")[:-1]:
            name, sign, value = part.partition("=")
            if name and sign:
                counts[name] += 1
                values.setdefault(name, {})[value] = None
    return tuple((name, tuple(texts)) for name, texts in values.items() if counts[name] == len(files))


def _head(storage: Storage, file: FileEntry) -> tuple[bytes, bool]:
    """Read the beginning of a file; tell whether that is all of it."""
    if file.path.startswith(SCHEME):
        try:
            with Path(local_path(file.path)).open("rb") as opened:
                data = opened.read(_HEAD_BYTES + 1)
        except OSError as err:
            raise _unreadable(file, f"it could not be read: {err.strerror}") from err
    else:
        data = storage.read(file.path) or b""
    return data[:_HEAD_BYTES], len(data) <= _HEAD_BYTES


def _texts(storage: Storage, files: Iterable[FileEntry]) -> Iterator[tuple[FileEntry, str, str | None, bool]]:
    """Read the beginnings of texts: with their encoding, and whether they are whole."""
    for file in files:
        head, is_whole = _head(storage, file)
        try:
            data, is_whole = samples.unpacked(base_name(file.path), head, _HEAD_BYTES, is_whole=is_whole)
            text, encoding = samples.decoded(data)
        except ValueError as err:
            raise _unreadable(file, str(err)) from err
        yield file, text, encoding, is_whole


def _unreadable(file: FileEntry, reason: str) -> BadFileError:
    return BadFileError(
        f"The file {printable(file.path)} cannot be loaded: {reason}.",
        kept=KEPT,
        do="repair the file, or move it out of the folder, and run the command again",
    )


def _csv(storage: Storage, files: Sequence[FileEntry]) -> dict[str, Any]:
    texts = list(_texts(storage, files))
    looks = [
        (file, sample)
        for file, text, _, is_whole in texts
        if (sample := samples.csv_sample(text, is_whole=is_whole))
    ]
    if not looks:
        raise _unreadable(files[0], "it has no record, and no other file that was looked into has one")
    separator = _common(
        "the separator is", ((file, look.separator) for file, look in looks if len(look.first) > 1)
    )
    for file, look in looks:
        if not look.is_mostly_even:
            raise _unreadable(file, "most of its records have another number of fields than the first")
    headers = list(dict.fromkeys(look.first for _, look in looks))
    has_header = samples.are_headers(headers, [look.looks_like_header for _, look in looks])
    names = list(dict.fromkeys(name for header in headers for name in header)) if has_header else []
    for file, look in looks:
        if has_header and "" in look.first:
            reason = f"its header has no name for column {look.first.index('') + 1}"
            raise _unreadable(file, f"{reason} (if the first line has values, set header to false)")
        if has_header:
            check_distinct(look.first)
    check_distinct(names)
    uneven = next(((file, look.uneven) for file, look in looks if look.uneven), None)
    encoding = _encoding(texts)
    return {
        "names": tuple(names),
        "has_header": has_header,
        "headers_differ": has_header and len(headers) > 1,
        "separator": separator or ",",
        "has_escapes": any(look.has_escapes for _, look in looks),
        "is_multiline": any(look.has_line_breaks for _, look in looks) or encoding == "UTF-16",
        "encoding": encoding,
        "uneven": uneven
        and f"Record {uneven[1]:,} of {base_name(uneven[0].path)!r} has more or fewer fields than the first.",
    }


def _json(storage: Storage, files: Sequence[FileEntry]) -> dict[str, Any]:
    texts = list(_texts(storage, files))
    looks = []
    for file, text, _, is_whole in texts:
        sample = samples.json_sample(text, is_whole=is_whole)
        if sample is None and text.strip():
            raise _unreadable(file, "it is not JSON")
        looks += [(file, sample)] if sample else []
    if not looks:
        raise _unreadable(files[0], "it has no value, and no other file that was looked into has one")
    _common(
        "a value is",
        (
            (file, "in the file" if look.is_document else "on each line")
            for file, look in looks
            if look.values > 1
        ),
    )
    return {
        "names": tuple(dict.fromkeys(name for _, look in looks for name in look.names)),
        "is_multiline": any(look.is_document for _, look in looks),
        "encoding": _encoding(texts),
    }


def _encoding(texts: Sequence[tuple[FileEntry, str, str | None, bool]]) -> str | None:
    """Find the encoding of texts. ASCII fits each, but those of two bytes."""
    encodings = (
        (file, encoding or "UTF-8") for file, text, encoding, _ in texts if encoding or not text.isascii()
    )
    encoding = _common("the encoding is", encodings)
    return None if encoding == "UTF-8" else encoding


def _common(what: str, values: Iterable[tuple[FileEntry, str]]) -> str | None:
    """Return the value that all files share; None if there is no file.

    :raises InputError: Two files have different values.
    """
    first: tuple[FileEntry, str] | None = None
    for file, value in values:
        first = first or (file, value)
        if value != first[1]:
            raise InputError(
                f"The files are of two kinds: in {printable(first[0].path)} {what} {first[1]!r}, in "
                f"{printable(file.path)} {value!r}.",
                kept=KEPT,
                do="keep each kind in a folder of its own: each needs its own task",
            )
    return first and first[1]


def _columnar(
    schema_of: Callable[[Any], pa.Schema], storage: Storage, files: Sequence[FileEntry]
) -> dict[str, Any]:
    columns, names = dict[str, None](), dict[str, None]()
    for file in files:
        is_local = file.path.startswith(SCHEME)
        opened = local_path(file.path) if is_local else io.BytesIO(storage.read(file.path) or b"")
        try:
            schema = schema_of(opened)
        except (pa.ArrowException, OSError) as err:
            raise _unreadable(file, f"its columns could not be read: {str(err).splitlines()[0]}") from err
        for column in schema:
            if unfit := _not_in_spark(column.type):
                raise _unreadable(file, f"its column {column.name!r} is {unfit}, which Spark cannot read")
            columns[column.name] = None
            names |= dict.fromkeys((column.name, *_inner_names(column.type)))
    check_distinct([*columns])
    return {"names": tuple(names)}


def _not_in_spark(kind: pa.DataType) -> str:
    """Name a type that Spark does not read; empty for the others."""
    if pa.types.is_time(kind):
        return "a time of day"
    if pa.types.is_float16(kind):
        return "a half float"
    if pa.types.is_decimal256(kind) and kind.precision > 38:  # noqa: PLR2004 - as many digits as a decimal has
        return f"a decimal of {kind.precision} digits"
    return "a union" if pa.types.is_union(kind) else ""


def _inner_names(kind: pa.DataType) -> Iterator[str]:
    """Return the names of all fields of structs inside of a column."""
    for number in range(kind.num_fields):
        field = kind.field(number)
        if pa.types.is_struct(kind):
            yield field.name
        yield from _inner_names(field.type)


_LOOKS: dict[str, Callable[[Storage, Sequence[FileEntry]], dict[str, Any]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": partial(_columnar, parquet.read_schema),
    "orc": partial(_columnar, lambda opened: orc.ORCFile(opened).schema),
    "text": lambda _, __: {},  # each line is a row
}
"""Format -> what looks into some files: the fields of ``Folder`` that they tell."""
