"""The Dag file that ``airflow scope init`` writes, from what it saw of a source. Nothing is read here."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sql import quoted
from airflow_provider_scope.values import counted, iso_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KEPT = "everything; nothing was written"
WIDTH = 88
"""Columns of a line: the default of ruff and black."""
NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""Characters that a table without column mapping has in no name of a column."""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
DIGITS = 38
"""The most that a decimal has."""
_USUAL_SCALE = 18
_SHOWN = 3

# ---- what was seen ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Files of one format."""

    root: str
    """As it was named."""
    format: str
    files: int
    size_bytes: int
    newest: str
    """The name of the newest file."""
    newest_ms: int
    young: int = 0
    """Files that a run would hold back, because they may still be written."""
    pattern: str | None = None
    """Of the names that are taken, if these are not the usual ones of the format."""
    left_out: tuple[str, ...] = ()
    """What is not taken, with the reason."""
    names: tuple[str, ...] = ()
    """The names of all columns, also inside of others."""
    has_header: bool = False
    headers_differ: bool = False
    separator: str = ","
    has_escapes: bool = False
    is_multiline: bool = False
    encoding: str | None = None
    """None is UTF-8."""
    uneven: str | None = None
    """A record with more or fewer fields than the others."""
    folders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Columns in the paths of all files: name, and its values."""


class Column(NamedTuple):
    """A column of a database."""

    name: str
    type: str
    """As the database names it."""
    kind: str
    """"whole", "number", "time", "text" or "other"."""
    is_required: bool = False
    """Whether it holds no NULL."""
    is_indexed: bool = False
    """Whether an index begins with it."""
    digits: tuple[int, int] | None = None
    """Of a number without precision: the most digits before and after the point."""
    unfit: str | None = None
    """Why its values can only be read as text; None if the table has a type for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseTable:
    """A table of a database."""

    conn_id: str
    database: str
    """"postgresql" or "sqlite"."""
    table: str
    """As SQL of the database names it."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    time_zone: str = "UTC"
    """In which the database takes times without a zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A Delta table with a change data feed."""

    table: str
    """As it was named."""
    version: int
    names: tuple[str, ...]
    """The names of all columns, also inside of others."""
    key: tuple[str, ...]
    kept: Mapping[str, str]
    """How long the table keeps its changes: property -> interval."""


Source = Folder | DatabaseTable | Feed

# ---- the text ----


class Argument(NamedTuple):
    """An argument of a call, or an item of a dict."""

    name: str
    value: Any
    """A text, a number, a truth value, a list of texts, or a ``Call``."""
    comment: str = ""
    """What was seen, and how to change it."""


class Call(NamedTuple):
    """A call; without a name a dict."""

    name: str
    arguments: tuple[Argument, ...]


def dag_text(dag_id: str, location: str, storage_conn_id: str | None, source: Source) -> str:
    """Write the Dag file that loads a source into a Delta table.

    :param location: The folder of the table.
    :param storage_conn_id: The connection of its store, and of that of the source.
    :raises InputError: No task can load this source.
    """
    what, arguments = {Folder: _of_folder, DatabaseTable: _of_database, Feed: _of_feed}[type(source)](source)  # type: ignore[operator]
    is_local = location.startswith(("/", "file:"))
    disk = "A path on a disk: the task has to run where it is. " if is_local else ""
    table = Argument(
        "delta_location",
        location,
        f"{disk}Spark runs in the task, and needs Java 17. For a cluster: "
        "engine=SparkEngine(spark_conn_id=…).",
    )
    connection = [Argument("storage_conn_id", storage_conn_id)] if storage_conn_id else []
    task = Call(
        "DeltaIncrementalIngestOperator",
        (Argument("task_id", "load"), table, *connection, *arguments),
    )
    dag = Call(
        "DAG",
        (
            Argument("", dag_id),
            Argument("schedule", None, 'Runs when it is triggered. To run it each hour: "@hourly".'),
        ),
    )
    specs = ", ".join(sorted({name for argument in arguments for name in _specs(argument.value)}))
    return "\n".join(
        (
            f'"""Load {what} into a Delta table, exactly once.',
            "",
            "Written by airflow scope init: each comment says what it saw, and how to change it.",
            f"`airflow scope plan {dag_id} load --read` shows what the next run loads.",
            '"""',
            "",
            "from airflow.sdk import DAG",
            "",
            "from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator",
            f"from airflow_provider_scope.specs import {specs}",
            "",
            f"with {_code(dag, 0, len('with  as dag:'))} as dag:",
            f"    {_code(task, 4, 4)}",
            "",
        )
    )


def _specs(value: Any) -> Iterator[str]:
    if isinstance(value, Call):
        if value.name:
            yield value.name
        for argument in value.arguments:
            yield from _specs(argument.value)


def _code(value: Any, indent: int, around: int) -> str:
    """Write a value as the formatter does.

    :param indent: Of the line.
    :param around: How many characters stand before and after it in its first line.
    """
    if not isinstance(value, Call):
        return _literal(value)
    opening, closing = (f"{value.name}(", ")") if value.name else ("{", "}")
    if not any(argument.comment for argument in value.arguments):
        inner = ", ".join(_prefix(value, a) + _code(a.value, 0, -WIDTH) for a in value.arguments)
        line = f"{opening}{inner}{closing}"
        # Bytes are never fewer than the columns that a text takes.
        if "\n" not in line and around + len(line.encode(errors="surrogatepass")) <= WIDTH:
            return line
    lines = [opening]
    blank = " " * (indent + 4)
    for argument in value.arguments:
        lines += [
            f"{blank}# {line}"
            for line in wrap(
                argument.comment, WIDTH - indent - 6, break_long_words=False, break_on_hyphens=False
            )
        ]
        prefix = _prefix(value, argument)
        lines.append(f"{blank}{prefix}{_code(argument.value, indent + 4, indent + 5 + len(prefix))},")
    return "\n".join((*lines, " " * indent + closing))


def _prefix(call: Call, argument: Argument) -> str:
    if not call.name:
        return f"{_literal(argument.name)}: "
    return f"{argument.name}=" if argument.name else ""


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if not isinstance(value, str):
        return repr(value)
    if re.search(r"\{[{%#]", value):
        raise InputError(
            f"The Dag file would have the text {value!r}, which Airflow takes for a template.",
            kept=KEPT,
            do="rename the folder, the table or the column in it",
        )
    text = repr(value)
    if text.startswith("'") and '"' not in text:
        return f'"{text[1:-1]}"'
    if text.startswith("'") and "\\'" in text:  # it has both quotes
        inner = text[1:-1].replace("\\'", "'")
        doubled = '"' + inner.replace('"', '\\"') + '"'
        return doubled if inner.count('"') <= inner.count("'") else text
    return text


# ---- columns ----


def check_distinct(names: Sequence[str]) -> None:
    """Refuse columns that no Delta table holds beside each other.

    :raises InputError: Two names differ in letter case alone.
    """
    counts = Counter(name.lower() for name in names)
    same = [name for name in names if counts[name.lower()] > 1]
    if same:
        raise InputError(
            "The source has columns whose names are the same, but for their letter case: "
            f"{', '.join(map(repr, same))}. A Delta table holds only one of them.",
            kept=KEPT,
            do="rename one of them in the source, and run the command again",
        )


def _table(names: Sequence[str], *, evolution: str = "") -> list[Argument]:
    """Write what the table needs for its columns.

    :param names: Of all columns, also inside of others.
    :param evolution: Why later columns join the table; empty if they do not.
    """
    fields = [Argument("schema_evolution", "add", evolution)] if evolution else []
    odd = [name for name in dict.fromkeys(names) if NOT_IN_NAMES & {*name}]
    if odd:
        comment = (
            f"A table has names such as {odd[0]!r} ({len(odd):,}) only with column mapping, which all of its "
            "readers have to know. Or leave this out, and give these columns other names in `sql`, with AS."
        )
        mapping = Call("", (Argument("delta.columnMapping.mode", "name"),))
        fields.append(Argument("properties", mapping, comment))
    return [Argument("table", Call("TableSpec", tuple(fields)))] if fields else []


# ---- files ----

_IN_PATHS = (
    ("date", re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")),
    ("bigint", re.compile(r"0|-?[1-9][0-9]{0,17}")),
)


def _of_folder(folder: Folder) -> tuple[str, list[Argument]]:
    left_out = "".join(f" Not loaded: {line}." for line in folder.left_out)
    files = (
        f"{counted(folder.files, 'file')}, {counted(folder.size_bytes, 'byte')}; the newest is "
        f"{folder.newest!r}, of {iso_time(folder.newest_ms)[:19]}Z. Each run loads those that no run has "
        f"loaded.{left_out}"
    )
    fields = [Argument("roots", folder.root, files), Argument("format", folder.format)]
    if folder.pattern:
        comment = "The names of the files that are loaded, as a regular expression."
        fields.append(Argument("patterns", folder.pattern, comment))
    options = _options(folder)
    if options:
        fields.append(Argument("options", Call("", tuple(options))))
    has_types = folder.format in ("csv", "json")
    if has_types:
        fields.append(Argument("columns", "infer", _types(folder)))
    fields += _partitions(folder)
    if folder.young:
        fields.append(
            Argument(
                "safety_buffer_seconds",
                30,
                f"{counted(folder.young, 'file')} may still be written: younger files than this wait for the "
                "next run. If files appear with their whole content, write 0.",
            )
        )
    if folder.uneven:
        comment = f'{folder.uneven} Such records go to a quarantine; "fail" refuses their batch instead.'
        fields.append(Argument("bad_records", "quarantine", comment))
    evolution = (
        'The files have different columns: each becomes a column of the table, as text. With "fail" all '
        "files have to have the same ones, and their types are inferred."
        if folder.headers_differ
        else ""
    )
    write = Argument(
        "write",
        "append",
        "Adds all rows of each file. If files bring newer rows of a key: Merge(strategy="
        '"upsert", primary_key=…).',
    )
    source = Argument("source", Call("FileSource", tuple(fields)))
    return f"new {folder.format} files", [source, *_table(folder.names, evolution=evolution), write]


def _options(folder: Folder) -> list[Argument]:
    """Write the options of Spark's reader that the files need."""
    options = []
    if folder.has_header:
        shown = ", ".join(map(repr, folder.names[:_SHOWN])) + (", …" if len(folder.names) > _SHOWN else "")
        comment = f"The first line of each file has names: {shown}. If it has values, leave this out."
        options.append(Argument("header", "true", comment))
    if folder.separator != ",":
        options.append(Argument("sep", folder.separator, "Between the fields of a record."))
    if folder.has_escapes:
        comment = 'A quote in a quoted field is \\", and not "".'
        options.append(Argument("escape", "\\", comment))
    if folder.is_multiline:
        comments = {
            "csv": "Quoted fields have line breaks. Without this option each line is a record.",
            "json": "Each file is one value. Without this option each line is one.",
        }
        options.append(Argument("multiLine", "true", comments[folder.format]))
    if folder.encoding:
        comment = "The files are not UTF-8, and their bytes fit this encoding: look at some letters."
        options.append(Argument("encoding", folder.encoding, comment))
    return options


def _types(folder: Folder) -> str:
    if folder.headers_differ:
        return 'To set the type of a column: schema_hints={"name": "bigint"}.'
    first = "The first batch says names and types, and later files have to fit them. "
    if folder.format == "csv" and not folder.has_header:
        first = (
            "The first line of the files has values, so columns are named _c0, _c1 and so on, and the first "
            "batch says their types. "
        )
    text = f'{first}To set them: columns={{"name": "bigint", …}}, with all columns in the order of the files.'
    if folder.format == "json":
        text += ' If keys come later: TableSpec(schema_evolution="add").'
    return text


def _partitions(folder: Folder) -> list[Argument]:
    """Write the columns whose values are in the paths of the files."""
    inside = {name.lower() for name in folder.names}
    columns = [
        Argument(name, _type_in_paths(values))
        for name, values in folder.folders
        if name.lower() not in inside
    ]
    if not columns:
        return []
    examples = ", ".join(f"{name}={values[0]}" for name, values in folder.folders)
    comment = f"Of folders such as {examples!r}. Without this they are no columns."
    return [Argument("partition_columns", Call("", tuple(columns)), comment)]


def _type_in_paths(values: Sequence[str]) -> str:
    texts = [unquote(value) for value in values if value != _NO_VALUE]
    fits = (kind for kind, form in _IN_PATHS if texts and all(map(form.fullmatch, texts)))
    return next(fits, "string")


# ---- databases ----

_CHANGED = re.compile(r"updat|modif|(?<!ex)chang|mtime", re.IGNORECASE)
_FLAG = re.compile(r"(is_?)?(deleted|removed)(_at)?", re.IGNORECASE)
_NO_DELETES = "Rows that are deleted in the database stay: a cursor does not see that."


def _of_database(source: DatabaseTable) -> tuple[str, list[Argument]]:
    cursor, why = _cursor(source)
    fields = [Argument("conn_id", source.conn_id), Argument("table", source.table)]
    if cursor is None:
        cursor = next((column for column in source.columns if column.kind != "other"), None)
    if cursor is None:
        raise InputError(
            f"No column of {source.table} has a type that a cursor can have.",
            kept=KEPT,
            do="load a `query` that computes one, as in JdbcSource(query=…)",
        )
    fields.append(Argument("cursor", Call("Cursor", tuple(_cursor_fields(source, cursor))), why))
    if source.database == "postgresql" and cursor.type in _WITHOUT_ZONE and why:
        comment = f"{cursor.name!r} has no zone: the one in which its writers set it. The database's is this."
        fields.append(Argument("time_zone", source.time_zone, comment))
    types = [(column.name, *_custom(column)) for column in source.columns if column.digits or column.unfit]
    if types:
        schema = ", ".join(f"{quoted(name)} {kind}" for name, kind, _ in types)
        reasons = " ".join(f"{name!r}: {reason}." for name, _, reason in types)
        comment = f"{reasons} A value that does not fit is refused, and never rounded."
        fields.append(Argument("options", Call("", (Argument("customSchema", schema, comment),))))
    arguments = [
        Argument("source", Call("JdbcSource", tuple(fields))),
        *_table([column.name for column in source.columns]),
    ]
    if not why:
        comment = (
            "No column shows which rows are new: none is a time of the last change, or a key of ascending "
            "numbers. So each run loads all rows, and replaces those of the table. If there is such a "
            'column, name it in the cursor, and write Merge(strategy="upsert", primary_key=…).'
        )
        return "the rows of a table", [*arguments, Argument("write", "replace", comment)]
    key = list(source.key) if len(source.key) > 1 else source.key[0]
    merge = Call("Merge", (Argument("strategy", "upsert"), Argument("primary_key", key)))
    flag = next((column.name for column in source.columns if _FLAG.fullmatch(column.name)), None)
    deletes = f" If {flag!r} marks deleted rows: hard_delete={flag!r} deletes them here, too." if flag else ""
    comment = f"The key of the table says which row a changed one replaces. {_NO_DELETES}{deletes}"
    return "new and changed rows of a table", [*arguments, Argument("write", merge, comment)]


_WITHOUT_ZONE = ("timestamp without time zone", "date")


def _cursor(source: DatabaseTable) -> tuple[Column | None, str]:
    """Choose the column that shows which rows are new, and say why; no reason if there is none."""
    changed = [
        column for column in source.columns if _is_time(source, column) and _CHANGED.search(column.name)
    ]
    if changed:
        column = max(changed, key=lambda column: (column.is_indexed, column.is_required))
        index = (
            "" if column.is_indexed else " No index begins with it, so each run reads the whole table there."
        )
        return column, (
            f"By its name, {column.name!r} ({column.type}) is the time of the last change of a row. A change "
            f"that does not set it is not loaded.{index}"
        )
    keys = [column for column in source.columns if (column.name,) == source.key and column.kind == "whole"]
    if keys:
        return keys[0], (
            f"{keys[0].name!r} is the key, and taken to grow with each new row. Changes of older rows are "
            "not loaded: no name of a column looks like the time of the last change."
        )
    return None, ""


def _is_time(source: DatabaseTable, column: Column) -> bool:
    # SQLite has no type for times: they are texts.
    return column.kind == "time" or (source.database == "sqlite" and column.kind == "text")


def _cursor_fields(source: DatabaseTable, column: Column) -> Iterator[Argument]:
    yield Argument("column", column.name)
    if not column.is_required:
        comment = "Rows without a value are loaded each time, because the column may hold NULL."
        yield Argument("on_cursor_value_missing", "include", comment)
    if source.database == "sqlite" and column.kind in ("whole", "number"):
        yield Argument("lag", 0, "No row comes late: SQLite has one writer at a time.")


def _custom(column: Column) -> tuple[str, str]:
    """Choose the type of a column for which the table has none, and say why."""
    if column.digits is None:
        return "STRING", f"{column.unfit}, so it is read as text"
    whole, scale = column.digits
    seen = (
        f"{column.type} without a precision, with up to {whole} digits before the point and {scale} after it"
    )
    for wide in (max(scale, _USUAL_SCALE), scale):
        if whole + wide <= DIGITS:
            return f"DECIMAL({DIGITS},{wide})", seen
    return "STRING", f"{seen}, which no decimal holds"


# ---- feeds ----


def _of_feed(feed: Feed) -> tuple[str, list[Argument]]:
    kept = "; ".join(f"{name} is {value!r}" for name, value in feed.kept.items())
    first = (
        f"The first run loads all rows of the newest version (now {feed.version}), the next ones the changes "
        f"since: older versions may be gone. Run it more often than the source forgets changes: {kept}."
    )
    fields = (
        Argument("table", feed.table),
        Argument("full_load", value=True, comment=first),
        Argument("deletes", "apply", 'Deletes in the source delete here. "ignore" or "soft" keeps the rows.'),
    )
    key = list(feed.key) if len(feed.key) > 1 else feed.key[0]
    merge = Call("Merge", (Argument("strategy", "upsert"), Argument("primary_key", key)))
    comment = "The key, as it was named: each value belongs to one row of the source."
    source = Argument("source", Call("CdfSource", fields))
    return "the changes of a Delta table", [source, *_table(feed.names), Argument("write", merge, comment)]
