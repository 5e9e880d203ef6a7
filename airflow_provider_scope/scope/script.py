"""The script of one batch: the same values give the same bytes.

The statements and their order are dbt-scope's, and the marks around the rows are ours: the table's property
``MARKER_PROPERTY`` names the attempt before its rows, and says after them that they are in.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from airflow_provider_scope.scope.dialect import KEYWORDS, VIRTUAL_FUNCTIONS, Value, check_model, parse_type
from airflow_provider_scope.scope.jobs import MARKER_PROPERTY, PIPELINE, SCRIPT_LIMIT_BYTES, BatchIdentity
from airflow_provider_scope.specs import capabilities
from airflow_provider_scope.specs.engine import COMMIT_CONDITIONS
from airflow_provider_scope.validation import bad, is_deferred

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_scope.specs.ingest import Ingest
    from airflow_provider_scope.values import FileEntry


_SHOWN_FILES = 20
_MOST_OUTPUT_FILES = 1_000_000
"""The compiler takes no more."""
_DEFAULTS: Mapping[str, Value] = {
    "DeltaLakeCommitCondition": "FailIfFileConflict",
    "MaxFileCountPerOutputFileSet": 5000,
}
"""dbt-scope's, under the names of SCOPE."""


def generate(batch: ScriptBatch) -> str:
    """Write the script.

    :raises InputError: A value can be neither quoted nor written as it is; the message names it.
    :raises SqlError: The user's SELECT would not stay one statement.
    """
    _check(batch)
    model = check_model(batch.sql)
    table_columns = _columns("table_columns", batch.table_columns, " ")
    parts = [
        _comments(batch),
        _settings(batch),
        f"#DECLARE @deltaPath string = {quote_string('location', batch.location)};\n",
        "CREATE TABLE IF NOT EXISTS @target\n(\n"
        + ",\n".join(table_columns)
        + "\n)\n"
        + _partitions(batch)
        + "LOCATION @deltaPath\nOPTIONS (LAYOUT = DELTA);\n",
        _properties(batch),
    ]
    if batch.overwrite:
        parts.append(
            "DECLARE TABLE @target_rw\nLOCATION @deltaPath\nOPTIONS (LAYOUT = DELTA);\n\n"
            "DELETE FROM @target_rw WHERE true;\n"
        )
    parts += [
        f"ALTER TABLE @target\nADD COLUMN IF NOT EXISTS {quote_name('new_columns', name)} "
        f"{parse_type(batch.table_columns[name]).text};\n"
        for name in batch.new_columns
    ]
    parts += [
        _extract(batch),
        f"@batch_data =\n{model};\n",
        _insert(batch),
        _set_properties({MARKER_PROPERTY: batch.identity.closing_marker}),
    ]
    return "\n".join(part for part in parts if part)


def files_that_fit(batch: ScriptBatch, limit_bytes: int = SCRIPT_LIMIT_BYTES) -> int:
    """Return how many of the batch's files, from its first, a script of this size can name.

    0 means that the script is too long with a single file.
    """
    sure, most, size = 0, 0, 0
    for number, file in enumerate(batch.files, start=1):
        size += len(quote_file(file.path))
        if size > limit_bytes:
            break
        most = number
    middle = most
    while sure < most:
        if len(generate(replace(batch, files=batch.files[:middle])).encode()) <= limit_bytes:
            sure = middle
        else:
            most = middle - 1
        middle = (sure + most + 1) // 2
    return sure


def generate_void(identity: BatchIdentity) -> str:
    """Write a script that changes nothing, to take the place of an attempt that must never run."""
    return header(identity) + f"\n#DECLARE @void string = {quote_string('marker', identity.marker)};\n"


def _check(batch: ScriptBatch) -> None:
    for argument in ("table_columns", "files"):
        if not getattr(batch, argument):
            raise bad(argument, getattr(batch, argument), "at least one")
    _distinct("files", [file.path for file in batch.files], fold=False)
    _distinct("table_columns", batch.table_columns)
    _distinct("columns of the files", [*_extract_columns(batch), *batch.virtual_columns])
    _distinct("partition_by", batch.partition_by)
    _distinct("properties", [*batch.properties, MARKER_PROPERTY])
    _distinct("settings", batch.settings)
    for name in batch.partition_by:
        if name not in batch.table_columns:
            raise bad("partition_by", name, f"one of the columns {', '.join(batch.table_columns)}")


def _distinct(argument: str, values: Iterable[str], *, fold: bool = True) -> None:
    """Refuse a value that comes twice; Delta does not tell names apart by case."""
    seen = set()
    for value in values:
        key = value.lower() if fold else value
        if key in seen:
            raise bad(argument, value, "each name once")
        seen.add(key)


def _comments(batch: ScriptBatch) -> str:
    lines = [
        f"mode: {'overwrite' if batch.overwrite else 'append'}",
        f"files: {len(batch.files)}, estimated bytes: {sum(file.size_bytes for file in batch.files)}",
        f"{'bytes':>16}  file",
    ]
    lines += [f"{file.size_bytes:>16}  {quote_file(file.path)}" for file in batch.files[:_SHOWN_FILES]]
    if len(batch.files) > _SHOWN_FILES:
        lines.append(f"{'...':>16}  and {len(batch.files) - _SHOWN_FILES} more")
    return header(batch.identity) + "".join(f"// {line}\n" for line in lines)


def _settings(batch: ScriptBatch) -> str:
    lines = []
    if batch.feature_previews:
        previews = quote_string("feature_previews", ",".join(batch.feature_previews))
        lines.append(f"SET @@FeaturePreviews = {previews};\n")
    spelled = {name.lower(): name for name in _DEFAULTS}
    settings = {**_DEFAULTS, **{spelled.get(name.lower(), name): v for name, v in batch.settings.items()}}
    count = settings["MaxFileCountPerOutputFileSet"]
    if isinstance(count, str) and count.strip().isdecimal():  # of a template
        settings["MaxFileCountPerOutputFileSet"] = int(count)
    _check_settings(settings)
    for name, value in settings.items():
        if not _PLAIN.fullmatch(name):
            raise bad("settings", name, "a name of letters, digits and _")
        lines.append(f"SET @@{name} = {value_text(f'settings[{name!r}]', value)};\n")
    return "".join(lines)


def _check_settings(settings: Mapping[str, Value]) -> None:
    for name in settings:
        if name.lower() == "featurepreviews":
            raise bad("settings", name, "a setting that has no argument", "use feature_previews")
    condition = settings["DeltaLakeCommitCondition"]
    if condition not in COMMIT_CONDITIONS:
        expected = f"one of {', '.join(COMMIT_CONDITIONS)}"
        raise bad("settings['DeltaLakeCommitCondition']", condition, expected)
    count = settings["MaxFileCountPerOutputFileSet"]
    if type(count) is not int or not 1 <= count <= _MOST_OUTPUT_FILES:
        expected = f"a whole number from 1 to {_MOST_OUTPUT_FILES:,}"
        raise bad("settings['MaxFileCountPerOutputFileSet']", count, expected)


def _columns(argument: str, columns: Mapping[str, str], sign: str) -> list[str]:
    return [
        f"    {quote_name(argument, name)}{sign}{parse_type(kind).text}" for name, kind in columns.items()
    ]


def _partitions(batch: ScriptBatch) -> str:
    names = ", ".join(quote_name("partition_by", name) for name in batch.partition_by)
    return f"PARTITIONED BY ({names})\n" if names else ""


def _properties(batch: ScriptBatch) -> str:
    # dbt-scope writes text and numbers only, and Delta keeps every property as text.
    properties: dict[str, Value] = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in batch.properties.items()
    }
    return _set_properties({**properties, MARKER_PROPERTY: batch.identity.marker})


def _set_properties(properties: Mapping[str, Value]) -> str:
    lines = [
        f"    {quote_string('properties', key)} = {value_text(f'properties[{key!r}]', value)}"
        for key, value in properties.items()
    ]
    return "ALTER TABLE @target\nSET TBLPROPERTIES\n(\n" + ",\n".join(lines) + "\n);\n"


def _insert(batch: ScriptBatch) -> str:
    # The columns are named twice: without the list SCOPE goes by position, and a table that has grown has
    # its columns in another order.
    names = [quote_name("table_columns", name) for name in batch.table_columns]
    selected = ",\n".join(f"    {name}" for name in names)
    return f"INSERT INTO @target ({', '.join(names)})\nSELECT\n{selected}\nFROM @batch_data;\n"


def _extract_columns(batch: ScriptBatch) -> Mapping[str, str]:
    if batch.extract_columns:
        return batch.extract_columns
    return {name: kind for name, kind in batch.table_columns.items() if name.lower() not in VIRTUAL_FUNCTIONS}


def _extract(batch: ScriptBatch) -> str:
    items = _columns("extract_columns", _extract_columns(batch), " : ")
    items += [f"    {name} = {VIRTUAL_FUNCTIONS[name]}()" for name in batch.virtual_columns]
    columns = ",\n".join(items)
    files = ",\n".join(f"    {quote_file(file.path)}" for file in batch.files)
    return f"@data =\nEXTRACT\n{columns}\nFROM\n{files}\nUSING Extractors.SStream();\n"


# ---- Values as SCOPE text: each is quoted so that it stays one token, or refused by its name ----
# Strings come out in ASCII, so no character can end a line or be read in two ways, and a script has the
# same bytes everywhere.


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NOT_AS_IT_IS = re.compile(r'[^ -~]|["\\]')
_LONG = range(-(2**63), 2**63)
_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_IN_NAMES = ("[", "]", '"', "'", ";", "#", "@@", "//", "/*", "*/")
_NOT_IN_FILES = "{}*?"
"""SCOPE reads braces in a path as a pattern over many files; the other two are refused with them."""
_CSHARP_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        abstract as base bool break byte case catch char checked class const continue decimal default
        delegate do double else enum event explicit extern false finally fixed float for foreach goto if
        implicit in int interface internal is lock long namespace new null object operator out override
        params private protected public readonly ref return sbyte sealed short sizeof stackalloc static
        string struct switch this throw true try typeof uint ulong unchecked unsafe ushort using virtual
        void volatile while
        """,
    )
)


def quote_string(argument: str, value: str) -> str:
    """Write a text as a string literal.

    :raises InputError: It holds half of a surrogate pair, which no string of SCOPE can stand for.
    """
    if _SURROGATES.search(value):
        raise bad(argument, value, "text that can be written as UTF-8")
    quoted = _NOT_AS_IT_IS.sub(_escaped, value)
    # A submitter may fill in @@name@@ before the script is compiled, in strings too.
    return '"' + quoted.replace("@@", "@\\u0040") + '"'


def quote_name(argument: str, value: str) -> str:
    """Write the name of a column, in brackets where it is not a plain one.

    :raises InputError: It holds a character that cannot stand in brackets.
    """
    if _PLAIN.fullmatch(value) and value not in KEYWORDS and value not in _CSHARP_KEYWORDS:
        return value
    is_clean = bool(value) and value.isprintable() and value == value.strip()
    if not is_clean or any(sign in value for sign in _NOT_IN_NAMES):
        raise bad(argument, value, "a name of printable characters without " + " ".join(_NOT_IN_NAMES))
    return f"[{value}]"


def quote_file(path: str) -> str:
    """Write the path of one file as a string literal.

    :raises InputError: It is empty, or SCOPE could read it as a pattern.
    """
    if not path or any(char in _NOT_IN_FILES for char in path):
        raise bad(
            "files",
            path,
            f"the path of one file, without any of {' '.join(_NOT_IN_FILES)}",
            "rename the file; if its batch is logged already, abandon the batch first",
        )
    return quote_string("files", path)


def value_text(argument: str, value: Value) -> str:
    """Write a setting's or property's value as a literal; Python's booleans become C#'s.

    :raises InputError: It is not text, a boolean, a whole number of 64 bits, or a finite number.
    """
    if isinstance(value, str):
        return quote_string(argument, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value in _LONG:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    raise bad(argument, value, "text, True, False, a whole number of 64 bits, or a finite number")


def _escaped(match: re.Match[str]) -> str:
    char = match.group()
    if char in _ESCAPES:
        return _ESCAPES[char]
    code = ord(char)
    return f"\\u{code:04x}" if char <= "\uffff" else f"\\U{code:08x}"


# ---- what goes into a script ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptBatch:
    """Everything that the script of one batch is made of."""

    identity: BatchIdentity
    location: str
    """The Delta table, as SCOPE addresses it."""
    sql: str
    """The user's SELECT over ``@data``."""
    files: tuple[FileEntry, ...]
    """In the order in which they are read; paths as SCOPE addresses them."""
    table_columns: Mapping[str, str]
    """Name -> SCOPE type, in order."""
    extract_columns: Mapping[str, str] | None = None
    """Those of the files; None takes the table's, without the virtual ones."""
    virtual_columns: tuple[str, ...] = tuple(VIRTUAL_FUNCTIONS)
    """Which of ``VIRTUAL_FUNCTIONS`` are read."""
    partition_by: tuple[str, ...] = ()
    new_columns: tuple[str, ...] = ()
    """Those of ``table_columns`` that the table may not have; they are added where they are missing."""
    properties: Mapping[str, Value] = field(default_factory=dict)
    overwrite: bool = False
    """Whether everything in the table is deleted first: the first batch of a full refresh."""
    feature_previews: tuple[str, ...] = ("EnableDeltaTableDynamicInsert:on",)
    settings: Mapping[str, Value] = field(default_factory=dict)
    """Further ``SET @@name = value;``."""


def header(identity: BatchIdentity) -> str:
    """Write the comment lines that start a script.

    :raises InputError: The pipeline's name could end the comment, or a number is none.
    """
    if not re.fullmatch(PIPELINE, identity.pipeline):
        raise bad("pipeline", identity.pipeline, "letters, digits, spaces and . _ : / + -")
    for name, number in (("seq", identity.seq), ("attempt", identity.attempt)):
        if type(number) is not int or number < 0:
            raise bad(name, number, "a whole number, at least 0")
    numbers = f"// seq: {identity.seq}\n// attempt: {identity.attempt}\n"
    return f'// airflow-provider-scope batch\n// pipeline: "{identity.pipeline}"\n{numbers}'


def check_scope(ingest: Ingest) -> None:
    """Refuse what SCOPE jobs cannot do, before anything is read.

    :raises InputError: With the argument and what to write instead.
    """
    if not (is_deferred(ingest.sql) or ingest.sql.endswith(".sql")):
        check_model(ingest.sql)
    capabilities.check(capabilities.IN_JOBS, {f.name: getattr(ingest, f.name) for f in fields(ingest)})
