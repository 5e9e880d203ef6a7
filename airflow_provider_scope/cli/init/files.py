"""What the files of a folder are: their format, and what a first run would refuse about them."""

from __future__ import annotations

import io
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import orc, parquet

from airflow_provider_scope.cli.init import samples
from airflow_provider_scope.cli.init.dag_file import KEPT, Load, check_distinct, refusal
from airflow_provider_scope.columns import INFER
from airflow_provider_scope.engines import clock
from airflow_provider_scope.exceptions import BadFileError, SourceEmptyError
from airflow_provider_scope.sources.files.discovery import Rules, candidates
from airflow_provider_scope.sources.files.spec import SAFETY_BUFFER_SECONDS, FileSource
from airflow_provider_scope.stores.local import SCHEME, local_path
from airflow_provider_scope.values import (
    base_name,
    counted,
    is_hidden,
    iso_time,
    printable,
    some_names,
    usual_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from airflow_provider_scope.cli.init.samples import CsvSample, JsonSample
    from airflow_provider_scope.sources.files.discovery import Candidates
    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import FileEntry

_OTHER_NAMES = {"csv": r"(?i)\.(tsv|tab|psv)(\.gz|\.gzip|\.bz2|\.deflate)?$"}
"""Format -> names that are not its usual ones, and are no other format's either."""
_SAMPLED = 5
_SHOWN = 3
_HEAD_BYTES = 8 * 1024**2
"""What is looked at of a file."""
_WHOLE_BYTES = 64 * 1024**2
"""Of another store than a disk, a file is read as a whole, if it is not larger than this."""
_IN_PATHS = (
    ("date", re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")),
    ("bigint", re.compile(r"0|-?[1-9][0-9]{0,17}")),
)
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_SET_TYPES = 'To set them: columns={"name": "bigint", …}, with all columns in the order of the files.'
_TYPES = f"The first batch says names and types, and later files have to fit them. {_SET_TYPES}"
_TYPES_WITHOUT_NAMES = (
    "The first line of the files has values, so columns are named _c0, _c1 and so on, and the first batch "
    f"says their types. {_SET_TYPES}"
)


class Content(NamedTuple):
    """What is inside of the files."""

    names: Sequence[str] = ()
    """Of all columns, also inside of others."""
    fields: Mapping[str, Any] = {}
    """Of the ``FileSource``."""
    facts: Mapping[str, Any] = {}
    """For the comments."""
    schema_evolution: str = "fail"


def folder_of(root: str, uri: str, storage: Storage, wanted: str | None) -> Load:
    """Look into a folder of files of one format.

    :param root: The folder, as it was named.
    :param uri: Its canonical URI.
    :param wanted: The format; None finds it by the names.
    :raises ScopeProviderError: No run could load them.
    """
    listing = list(storage.walk(uri))
    kind, pattern = _format_of(uri, listing, wanted)
    spec = FileSource(roots=root, format=kind, patterns=pattern, safety_buffer_seconds=0)  # type: ignore[arg-type] # of FORMATS
    now_ms = clock.now_ms()
    chosen = candidates(listing, Rules.of(spec, now_ms), [uri])
    files, left_out = chosen.files, list(_left_out(chosen, listing))
    if not files:
        raise SourceEmptyError(
            f"None of the {counted(len(listing), 'file')} in {root} can be loaded: {'; '.join(left_out)}.",
            kept=KEPT,
            do="put a file of the source there, and run the command again",
        )
    is_local = uri.startswith(SCHEME)
    sampled = _sampled([file for file in files if is_local or file.size_bytes <= _WHOLE_BYTES])
    if not sampled:
        raise refusal(
            f"All files in {root} are larger than {_WHOLE_BYTES:,} bytes, which is the most that is read.",
            "put a smaller file beside them, and run the command again",
        )
    content = _CONTENTS[kind](storage, sampled)
    shared = _in_paths(uri, files)
    inside = {name.lower() for name in content.names}
    columns = {name: _type_in_paths(texts) for name, texts in shared.items() if name.lower() not in inside}
    young = sum(file.modified_ms > now_ms - SAFETY_BUFFER_SECONDS * 1000 for file in files)
    facts = {
        "files": counted(len(files), "file"),
        "size": counted(sum(file.size_bytes for file in files), "byte"),
        "newest": printable(base_name(files[-1].path)),
        "time": iso_time(files[-1].modified_ms)[:19],
        "left_out": "".join(f" Not loaded: {line}." for line in left_out),
        "folders": ", ".join(f"{name}={texts[0]}" for name, texts in shared.items()),
        "young": counted(young, "file"),
        "write": 'Adds all rows of each file. If files bring newer rows of a key: Merge(strategy="upsert", '
        "primary_key=…).",
        **content.facts,
    }
    source = replace(
        spec,
        safety_buffer_seconds=SAFETY_BUFFER_SECONDS,
        partition_columns=columns or None,
        **content.fields,
    )
    return Load(
        subject=f"new {kind} files",
        source=source,
        names=content.names,
        write="append",
        facts=facts,
        schema_evolution=content.schema_evolution,
        also=("source.safety_buffer_seconds",) if young else (),
    )


def _format_of(uri: str, listing: Sequence[FileEntry], wanted: str | None) -> tuple[str, str | None]:
    """Find the format of files by their names.

    :return: And the pattern of their names, if these are not the usual ones.
    """
    parts = [file.path[len(uri) + 1 :].split("/") for file in listing]
    names = [path[-1] for path in parts if not any(map(is_hidden, path))]
    patterns: list[tuple[str, str, str | None]] = [(kind, usual_pattern(kind), None) for kind in _CONTENTS]
    patterns += [(kind, pattern, pattern) for kind, pattern in _OTHER_NAMES.items()]
    matching = {
        (kind, special): having
        for kind, pattern, special in patterns
        if wanted in (None, kind) and (having := [name for name in names if re.search(pattern, name)])
    }
    if len(matching) > 1 and wanted is None:
        matching.pop(("text", None), None)  # such as a readme.txt
    if len(matching) == 1 or (matching and wanted):  # of one format, the usual names come first
        return next(iter(matching))
    if not names:
        raise SourceEmptyError(
            f"The folder {uri} holds no file.",
            kept=KEPT,
            do="put a file of the source there, and run the command again: the Dag file says what it saw",
        )
    if not matching:
        raise refusal(
            f"No file in {uri} has a name of {wanted or 'a known format'}: {some_names(sorted(names), 3)}.",
            "rename the files, or write the Dag file yourself: FileSource(format=…, patterns=…)",
        )
    shown = ", ".join(
        f"{len(having):,} {kind} such as {having[0]!r}" for (kind, _), having in matching.items()
    )
    raise refusal(
        f"The folder {uri} holds files of several formats or endings: {shown}.",
        f"choose one of them with --format, such as `--format {next(iter(matching))[0]}`; or name a folder "
        "with files of one kind. Each needs its own table",
    )


def _left_out(files: Candidates, listing: Sequence[FileEntry]) -> Iterator[str]:
    for reason, count in sorted(files.left_out.counts.items()):
        names = files.left_out.names.get(reason)
        example = f", such as {base_name(names[0])!r}" if names else ""
        yield f"{counted(count, 'file')}, {reason}{example}"
    unmatched = len(listing) - files.matched
    if unmatched:
        yield f"{counted(unmatched, 'file')} with other names"


def _sampled(files: Sequence[FileEntry]) -> list[FileEntry]:
    """Choose files to be looked into: the newest, the largest, and some between."""
    if not files:
        return []
    between = files[:: max(1, len(files) // (_SAMPLED - 2))][: _SAMPLED - 2]
    largest = max(files, key=lambda file: file.size_bytes)
    return list({file.path: file for file in (files[-1], largest, *between)}.values())


def _in_paths(root: str, files: Sequence[FileEntry]) -> dict[str, list[str]]:
    """Find the columns that are in the paths of all files, as in ``d=2026-11-25``, with their values."""
    values: dict[str, dict[str, None]] = {}
    counts: Counter[str] = Counter()
    for file in files:
        for part in file.path[len(root) :].split("/")[:-1]:
            name, sign, value = part.partition("=")
            if name and sign:
                counts[name] += 1
                values.setdefault(name, {})[value] = None
    return {name: [*texts] for name, texts in values.items() if counts[name] == len(files)}


def _type_in_paths(values: Sequence[str]) -> str:
    texts = [unquote(value) for value in values if value != _NO_VALUE]
    fits = (kind for kind, form in _IN_PATHS if texts and all(map(form.fullmatch, texts)))
    return next(fits, "string")


# ---- text ----


class Text(NamedTuple):
    """The beginning of a text file."""

    file: FileEntry
    text: str
    encoding: str | None
    """None is UTF-8."""
    is_whole: bool


def _texts(storage: Storage, files: Iterable[FileEntry]) -> Iterator[Text]:
    for file in files:
        head, is_whole = _head(storage, file)
        try:
            data, is_whole = samples.unpacked(base_name(file.path), head, _HEAD_BYTES, is_whole=is_whole)
            text, encoding = samples.decoded(data)
        except ValueError as err:
            raise _unreadable(file, str(err)) from err
        yield Text(file, text, encoding, is_whole)


def _head(storage: Storage, file: FileEntry) -> tuple[bytes, bool]:
    """Read the beginning of a file; tell whether that is all of it."""
    if file.path.startswith(SCHEME):
        try:
            with Path(local_path(file.path)).open("rb") as opened:
                data = opened.read(_HEAD_BYTES + 1)
        except OSError as err:
            raise _unreadable(file, f"it could not be read: {err.strerror}") from err
    else:
        data = _whole(storage, file)
    return data[:_HEAD_BYTES], len(data) <= _HEAD_BYTES


def _whole(storage: Storage, file: FileEntry) -> bytes:
    data = storage.read(file.path)
    if data is None:
        raise _unreadable(file, "it is missing since the folder was listed")
    return data


def _unreadable(file: FileEntry, reason: str) -> BadFileError:
    return BadFileError(
        f"The file {printable(file.path)} cannot be loaded: {reason}.",
        kept=KEPT,
        do="repair the file, or move it out of the folder, and run the command again",
    )


def _encoding(texts: Sequence[Text]) -> str | None:
    """Find the encoding of texts, None for UTF-8. ASCII fits each, but those of two bytes."""
    encodings = (
        (text.file, text.encoding or "UTF-8") for text in texts if text.encoding or not text.text.isascii()
    )
    encoding = _common("the encoding is", encodings)
    return None if encoding == "UTF-8" else encoding


def _common(subject: str, values: Iterable[tuple[FileEntry, str]]) -> str | None:
    """Return the value that all files share; None if there is no file.

    :raises InputError: Two files have different values.
    """
    first: tuple[FileEntry, str] | None = None
    for file, value in values:
        first = first or (file, value)
        if value != first[1]:
            raise refusal(
                f"The files are of two kinds: in {printable(first[0].path)} {subject} {first[1]!r}, in "
                f"{printable(file.path)} {value!r}.",
                "keep each kind in a folder of its own: each needs its own task",
            )
    return first and first[1]


def _csv(storage: Storage, files: Sequence[FileEntry]) -> Content:
    texts = list(_texts(storage, files))
    csv_samples = {
        text.file: sample
        for text in texts
        if (sample := samples.csv_sample(text.text, is_whole=text.is_whole))
    }
    if not csv_samples:
        raise _unreadable(files[0], "it has no record, and no other file that was looked into has one")
    separators = ((file, sample.separator) for file, sample in csv_samples.items() if len(sample.first) > 1)
    separator = _common("the separator is", separators) or ","
    for file, sample in csv_samples.items():
        if not sample.is_mostly_even:
            raise _unreadable(file, "most of its records have another number of fields than the first")
    has_header = samples.are_headers(csv_samples.values())
    names = _header_names(csv_samples) if has_header else []
    is_varied = has_header and len({sample.first for sample in csv_samples.values()}) > 1
    uneven = [(sample.uneven, base_name(file.path)) for file, sample in csv_samples.items() if sample.uneven]
    encoding = _encoding(texts)
    options = {
        "header": has_header and "true",
        "sep": separator != "," and separator,
        "escape": any(sample.has_escapes for sample in csv_samples.values()) and "\\",
        "multiLine": (any(sample.has_line_breaks for sample in csv_samples.values()) or encoding == "UTF-16")
        and "true",
        "encoding": encoding,
    }
    facts = {
        "header": ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else ""),
        "multiline": "Quoted fields have line breaks.",
        "columns": _TYPES if has_header else _TYPES_WITHOUT_NAMES,
    }
    if is_varied:
        facts["columns"] = 'To set the type of a column: schema_hints={"name": "bigint"}.'
    for number, name in uneven[:1]:
        facts["uneven"] = f"Record {number:,} of {name!r}"
    fields = {
        "options": _given(options),
        "columns": INFER,
        "bad_records": "quarantine" if uneven else "fail",
    }
    return Content(names, fields, facts, "add" if is_varied else "fail")


def _given(options: Mapping[str, Any]) -> dict[str, str] | None:
    return {name: value for name, value in options.items() if value} or None


def _header_names(csv_samples: Mapping[FileEntry, CsvSample]) -> list[str]:
    """Return the names of all columns.

    :raises ScopeProviderError: No table can have them as columns.
    """
    for file, sample in csv_samples.items():
        if "" in sample.first:
            reason = f"its header has no name for column {sample.first.index('') + 1}"
            raise _unreadable(file, f"{reason} (if the first line has values, set header to false)")
        check_distinct(sample.first)
    names = list(dict.fromkeys(name for sample in csv_samples.values() for name in sample.first))
    check_distinct(names)
    return names


def _json(storage: Storage, files: Sequence[FileEntry]) -> Content:
    texts = list(_texts(storage, files))
    json_samples: list[tuple[FileEntry, JsonSample]] = []
    for text in texts:
        sample = samples.json_sample(text.text, is_whole=text.is_whole)
        if sample is None and text.text.strip():
            raise _unreadable(text.file, "it is not JSON")
        json_samples += [(text.file, sample)] if sample else []
    if not json_samples:
        raise _unreadable(files[0], "it has no value, and no other file that was looked into has one")
    places = (
        (file, "in the file" if sample.is_document else "on each line")
        for file, sample in json_samples
        if sample.values > 1
    )
    _common("a value is", places)
    is_document = any(sample.is_document for _, sample in json_samples)
    options = _given({"multiLine": is_document and "true", "encoding": _encoding(texts)})
    facts = {
        "multiline": "Each file is one value.",
        "columns": f'{_TYPES} If keys come later: TableSpec(schema_evolution="add").',
    }
    names = list(dict.fromkeys(name for _, sample in json_samples for name in sample.names))
    return Content(names, {"options": options, "columns": INFER}, facts)


# ---- columns ----


def _columnar(schema_of: Callable[[Any], pa.Schema], storage: Storage, files: Sequence[FileEntry]) -> Content:
    columns, names = dict[str, None](), dict[str, None]()
    for file in files:
        is_local = file.path.startswith(SCHEME)
        opened = local_path(file.path) if is_local else io.BytesIO(_whole(storage, file))
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
    return Content([*names])


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


_CONTENTS: dict[str, Callable[[Storage, Sequence[FileEntry]], Content]] = {
    "csv": _csv,
    "json": _json,
    "parquet": partial(_columnar, parquet.read_schema),
    "orc": partial(_columnar, lambda opened: orc.ORCFile(opened).schema),
    "text": lambda _, __: Content(),  # each line is a row
}
"""Format -> what looks into some files."""
