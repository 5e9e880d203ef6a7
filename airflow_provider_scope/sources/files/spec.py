"""Where the rows come from."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from airflow_provider_scope import validation
from airflow_provider_scope.columns import INFER, Columns, columns_from
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.spec import SourceSpec
from airflow_provider_scope.validation import Count, Flag, Instant, Several, Share, Whole
from airflow_provider_scope.values import base_name, usual_pattern

FileFormat = Literal["sstream", "parquet", "csv", "json", "text", "orc", "avro"]
LateFiles = Literal["ingest", "skip"]
OnChangedFile = Literal["ignore", "fail", "reload"]
ExtraColumns = Literal["fail", "ignore"]
MissingColumns = Literal["fail", "null"]
BadRecords = Literal["fail", "quarantine"]

_NOT_FORMATS = {
    "delta": "a Delta table is not read as files: use TableSource(table=…, cursor=Cursor(column=…)) for its "
    "new rows, or CdfSource(table=…) for its changes",
    **dict.fromkeys(("jsonl", "ndjson"), "use format='json', which is one value on each line"),
    "tsv": "use format='csv' with options={'sep': '\\t'} and patterns",
    "xml": "Spark's reader of XML drops text without a word. Use format='text' with options={'wholetext': "
    "'true'}, and from_xml in `sql`; or convert the files to JSON before",
}
RESCUING_FORMATS = ("csv", "json", "parquet", "avro")
"""Formats for which ``rescued_data_column`` is possible."""
_ONLY_RESCUED = "leave it out: it is for CSV, JSON, parquet and Avro files"
RESCUED_PATH = "_file_path"
"""The key of a file's path in rescued data."""
INFERRED_FORMATS = ("csv", "json")
"""Formats for which ``columns="infer"`` is possible."""
_GUESSING = frozenset({"inferschema", "samplingratio", "prefersdate", "infertimestamp", "prefersdecimal"})
"""Options of Spark's own inference, in lower case."""
MAX_BYTES_PER_TRIGGER = 10_737_418_240_000
"""dbt-scope's default: ten thousand gibibytes, in practice the number of files is the limit."""
MAX_FILES_ON_SPARK = 1_000
"""Spark's own default for ``maxFilesPerTrigger`` in Auto Loader; dbt-scope's 50 suits SCOPE jobs."""
SAFETY_BUFFER_SECONDS = 30
"""dbt-scope's default: time enough for a writer to finish a file that is listed already."""

VIRTUAL_COLUMNS = {
    "source_file_uri": "string",
    "source_file_length": "bigint",
    "source_file_created": "timestamp",
    "source_file_modified": "timestamp",
}
"""Columns that every file has: name -> Spark type."""


def _format(argument: str, value: Any) -> Any:
    return validation.one_of(argument, value, get_args(FileFormat), _NOT_FORMATS.get(str(value), ""))


def _columns(argument: str, value: Any) -> Any:
    return value if value == INFER else columns_from(argument, value)


def _options(argument: str, value: Any) -> Any:
    validation.mapping(argument, value)
    if not isinstance(value, Mapping):
        return value
    return {name: str(given).lower() if isinstance(given, bool) else given for name, given in value.items()}


def _by_pattern(argument: str, value: Any) -> Any:
    validation.mapping(argument, value)
    if not isinstance(value, Mapping):
        return value
    validation.patterns(argument, [*value], ending="csv")
    return {pattern: _options(f"{argument}[{pattern!r}]", options) for pattern, options in value.items()}


def _buffer(argument: str, value: Any) -> Any:
    seconds = validation.number(argument, value, at_least=0, whole=False)
    return SAFETY_BUFFER_SECONDS if seconds is None else seconds


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource(SourceSpec):
    """Files below one or more folders.

    :param roots: Folders, listed recursively. Absolute paths or ``file://`` URIs.
    :param patterns: Regular expressions, searched in the file's name; one match is enough. None is the usual
        names of the format: ``.csv`` and ``.csv.gz`` for CSV, and so on.
    :param format: How the files are read.
    :param columns: Column name -> Spark type, in the order of the files. It may be text such as
        ``id bigint, name string``, or a list of (name, type) or ``{"name": …, "type": …}``. None
        takes them from the files: the union of the columns of all files of a batch. ``"infer"`` infers
        names and types of CSV and JSON files from the first batch since the table was begun or replaced,
        and keeps them. With a ``schema_evolution`` that adds columns, they are texts, and new ones join them.
    :param schema_hints: With ``columns="infer"``: the types of single columns, in any form of ``columns``.
        They have these from the first batch on, even if no file has them yet.
    :param partition_columns: Columns whose values are in the folders of a file's path, as in
        ``d=2026-11-25/h=07``, in any form of ``columns``. ``"infer"`` takes all such folders, as
        texts but for those in ``schema_hints``.
    :param options: Options of Spark's reader for the format. Those that would leave files or rows out are
        refused. CSV files have more: ``CSV_OPTIONS``.
    :param options_by_pattern: For CSV files of several forms: regular expression -> further options of the
        files in whose names it is found. Each file has to match exactly one.
    :param max_files_per_trigger: Files in one batch at the most. None is 1,000 on Spark, and the
        connection's (50) on SCOPE.
    :param max_bytes_per_trigger: Bytes in one batch at the most; a larger file is a batch of its own. None
        is 10,737,418,240,000 on Spark, and the connection's (the same) on SCOPE.
    :param safety_buffer_seconds: Files younger than this are held back: they may still be written.
    :param starting_timestamp: Files modified before it are left out: a datetime with time zone, or
        ISO-8601 text. Fixed for the life of a pipeline in practice; earlier loads are not undone.
    :param late_files: ``"ingest"`` loads a file whatever its time. ``"skip"`` takes only files above the
        newest (modified, path) that was logged, and reads no history.
    :param on_changed_file: What to do with a loaded file that has changed since. ``"ignore"`` reports it,
        ``"fail"`` stops, and ``"reload"`` loads the new content too; the rows of the old content stay.
    :param extra_columns: What to do with columns of parquet, ORC and Avro files, and with keys of JSON,
        that ``columns`` does not declare: ``"fail"``, or leave them out (``"ignore"``).
    :param missing_columns: What to do if a parquet, ORC or Avro file lacks a declared column, or a path a
        folder of ``partition_columns``: ``"fail"``, or take NULL (``"null"``). A key that a JSON object lacks
        is always NULL.
    :param rescued_data_column: Name of a further column of the rows, with JSON text: the keys of a record
        that are not declared, and the values that are not of their declared type, each as it stands in the
        file. The value's own column is NULL. None: such a record is a bad one.
    :param bad_records: What to do with records and files that are not as declared, and with rows that break
        a rule of ``TableSpec.expect``. ``"fail"`` stops the batch. ``"quarantine"`` puts them into the table
        ``TableSpec.quarantine`` and loads the others.
    :param max_bad_records: With ``"quarantine"``: a batch with more bad records, rows and files than this
        fails, and nothing of it is written. None is no limit.
    :param max_bad_share: With ``"quarantine"``: a batch fails if a larger share than this (0 to 1) of its
        records, of the rows of the SELECT or of its files is bad. None is no limit.
    :param fail_on_empty: Fail a run if no file in the folders matches the patterns, loaded or not. False is
        a warning if there are other files, and nothing if there are none.
    :raises InputError: A value is not valid.
    """

    roots: Several
    patterns: Annotated[Sequence[str], partial(validation.patterns, ending="csv")] | None = None
    format: Annotated[FileFormat, _format] = "sstream"
    columns: Annotated[Columns, _columns] | None = None
    schema_hints: Annotated[Columns, columns_from] | None = None
    partition_columns: Annotated[Columns, _columns] | None = None
    options: Annotated[Mapping[str, str], _options] | None = None
    options_by_pattern: Annotated[Mapping[str, Mapping[str, str]], _by_pattern] | None = None
    max_files_per_trigger: Count | None = None
    max_bytes_per_trigger: Count | None = None
    safety_buffer_seconds: Annotated[float, _buffer] = SAFETY_BUFFER_SECONDS
    starting_timestamp: Instant | None = None
    late_files: LateFiles = "ingest"
    on_changed_file: OnChangedFile = "ignore"
    extra_columns: ExtraColumns = "fail"
    missing_columns: MissingColumns = "fail"
    rescued_data_column: str | None = None
    bad_records: BadRecords = "fail"
    max_bad_records: Whole | None = None
    max_bad_share: Share | None = None
    fail_on_empty: Flag | str = False

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        self._check_limits()
        if self.columns == INFER:
            _check_inferred(self.format, self.options)
        for argument, options in self._options().items():
            check_options(options)
            self._check_csv(argument, options)
        if isinstance(self.columns, Mapping):
            _check_columns("columns", self.columns)
        if isinstance(self.partition_columns, Mapping):
            _check_columns("partition_columns", self.partition_columns)
        self._check_hints()
        self._check_partitions()
        self._check_rescued()
        self._check_text()

    def _options(self) -> dict[str, Mapping[str, Any]]:
        """Map each argument with options to them."""
        arguments = {"options": self.options}
        if isinstance(self.options_by_pattern, Mapping):
            by_pattern = self.options_by_pattern.items()
            arguments |= {f"options_by_pattern[{pattern!r}]": options for pattern, options in by_pattern}
        return {name: options for name, options in arguments.items() if isinstance(options, Mapping)}

    def _check_csv(self, argument: str, options: Mapping[str, Any]) -> None:
        """Check what only CSV files have: options by pattern, and some that Spark's reader does not have.

        :param argument: With the options, which are beside those of all files.
        """
        if validation.is_deferred(self.format) or validation.is_deferred(self.columns):
            return
        common = by_lower_name(self.options if isinstance(self.options, Mapping) else None)
        by_pattern = ["options_by_pattern"] if argument != "options" else []
        together = {**common, **by_lower_name(options)}
        for_csv = [*by_pattern, *own_csv_options(together)]
        if self.format != "csv":
            if for_csv:
                do = "leave it out: it is for CSV files"
                raise validation.bad(argument, for_csv[0], f"other options with format={self.format!r}", do)
            return
        check_spelling(argument, options)
        if not by_pattern and self.options_by_pattern:
            return  # these are checked beside those of each pattern
        check_csv_options(argument, together)
        of_lines = [name for name in for_csv if name not in (DECIMAL, THOUSANDS)]
        if of_lines and not isinstance(self.columns, Mapping):
            do = "declare `columns`"
            raise validation.bad(argument, of_lines[0], "other options without declared `columns`", do)
        if of_lines and of_lines != by_pattern and self.rescued_data_column is not None:
            do = "leave one of the two out"
            raise validation.bad(argument, of_lines[-1], "other options with rescued_data_column", do)

    def _check_text(self) -> None:
        """Refuse what Spark's reader of text says nothing of and does not do: it gives lines in UTF-8."""
        if self.format != "text":
            return
        for option, value in (self.options if isinstance(self.options, Mapping) else {}).items():
            if _is_other_encoding(option.lower(), value):
                do = "write the files in UTF-8; or format='csv' with quote='' and a `sep` that none has"
                raise validation.bad(f"options[{option!r}]", value, "UTF-8 with format='text'", do)
        kinds = [*self.columns.values()] if isinstance(self.columns, Mapping) else ["string"]
        is_known = not any(map(validation.is_deferred, kinds))
        if is_known and [kind.strip().lower() for kind in kinds] != ["string"]:
            do = "leave it out, and take the column `value` apart in the SELECT"
            raise validation.bad("columns", self.columns, "one column, a string, with format='text'", do)

    def options_of(self, path: str) -> tuple[str, dict[str, Any]]:
        """Choose the options of a file: those of all, and those of the pattern that it matches.

        :return: The pattern, empty if there are none; and the options, by their names in lower case.
        :raises InputError: It matches none of the patterns, or several.
        """
        common = by_lower_name(self.options)
        if not self.options_by_pattern:
            return "", common
        patterns = [pattern for pattern in self.options_by_pattern if re.search(pattern, base_name(path))]
        if len(patterns) != 1:
            words = f"the patterns {', '.join(map(repr, patterns))}" if patterns else "none of the patterns"
            raise InputError(
                f"The file {path} matches {words} of options_by_pattern.",
                kept="the batches before it; this one wrote no row and stays logged",
                do="correct the patterns: the name of each file has to match exactly one. `patterns` chooses "
                "the files that are loaded at all",
            )
        return patterns[0], {**common, **by_lower_name(self.options_by_pattern[patterns[0]])}

    def _check_rescued(self) -> None:
        name, columns = self.rescued_data_column, self.columns
        if name is None or validation.is_deferred(name):
            return
        names = {*_names(columns), *_names(self.schema_hints), *_names(self.partition_columns)}
        if name.lower() in {taken.lower() for taken in (*names, *VIRTUAL_COLUMNS, RESCUED_PATH)}:
            raise validation.bad("rescued_data_column", name, "a name that no other column has")
        if RESCUED_PATH in names:
            do = f"give the column {RESCUED_PATH} another name: rescued data have the file's path under it"
            raise validation.bad("rescued_data_column", name, f"None with a column {RESCUED_PATH}", do)
        if self.format not in RESCUING_FORMATS and not validation.is_deferred(self.format):
            expected = f"None with format={self.format!r}"
            raise validation.bad("rescued_data_column", name, expected, _ONLY_RESCUED)
        if columns is None:
            do = "declare `columns`, or set columns='infer': without them, no key and no type is unexpected"
            raise validation.bad("rescued_data_column", name, "None without `columns`", do)
        if self.extra_columns == "ignore":
            do = "leave extra_columns out: what is not declared is rescued"
            raise validation.bad("extra_columns", "ignore", "'fail' with rescued_data_column", do)
        if self.format == "json" and isinstance(self.options, Mapping):
            for option, value in self.options.items():
                if _not_by_lines(option.lower(), value):
                    do = "leave one out: JSON is rescued from files in UTF-8 with one object on a line"
                    raise validation.bad("options", option, "other options with rescued_data_column", do)

    def _check_partitions(self) -> None:
        in_paths = self.partition_columns if isinstance(self.partition_columns, Mapping) else {}
        in_files = {name.lower() for columns in (self.columns, self.schema_hints) for name in _names(columns)}
        for name in in_paths:
            if name.lower() in in_files:
                do = "leave it out there, or here"
                raise validation.bad(
                    "partition_columns", name, "names other than those of the files' columns", do
                )

    def _check_hints(self) -> None:
        hints = self.schema_hints
        if hints is None or validation.is_deferred(hints) or validation.is_deferred(self.columns):
            return
        if not self.infers_columns:
            do = f"set columns={INFER!r}; or leave it out, and declare the types in `columns`"
            raise validation.bad("schema_hints", hints, f"None without columns={INFER!r}", do)
        if isinstance(hints, Mapping):
            _check_columns("schema_hints", hints)

    def _check_limits(self) -> None:
        for name in ("max_bad_records", "max_bad_share"):
            value = getattr(self, name)
            if not (value is None or validation.is_deferred(value)) and self.bad_records == "fail":
                do = 'leave it out: any bad record fails the batch; or set bad_records="quarantine"'
                raise validation.bad(name, value, 'None with bad_records="fail"', do)

    @property
    def name_patterns(self) -> tuple[str, ...]:
        """The patterns that count: those of the user, or the one for the usual names of the format."""
        return (usual_pattern(self.format),) if self.patterns is None else validation.each_of(self.patterns)

    @property
    def folders(self) -> tuple[str, ...]:
        return validation.each_of(self.roots)

    @property
    def file_roots(self) -> tuple[str, ...]:
        return self.folders

    @property
    def literal_roots(self) -> tuple[str, ...]:
        is_deferred, patterns = validation.is_deferred, self.patterns or ()
        if is_deferred(self.roots) or is_deferred(patterns) or any(map(is_deferred, patterns)):
            return ()
        return tuple(root for root in self.roots if not is_deferred(root))

    @property
    def begins_ms(self) -> int | None:
        return validation.instant_ms("starting_timestamp", self.starting_timestamp)

    @property
    def begins_by(self) -> str:
        return "starting_timestamp"

    @property
    def declared_columns(self) -> Mapping[str, str] | None:
        of_paths, rescued = self.partition_columns or {}, self.rescued_data_column
        if not isinstance(self.columns, Mapping) or not isinstance(of_paths, Mapping):
            return None
        return {**self.columns, **of_paths, **({rescued: "string"} if rescued else {})}

    @property
    def infers_columns(self) -> bool:
        return self.columns == INFER

    @property
    def puts_bad_records_aside(self) -> bool:
        return self.bad_records == "quarantine"

    def at(self, root: Callable[[str], str], table: Callable[[str], str]) -> Self:  # noqa: ARG002 - of others
        return replace(self, roots=tuple(dict.fromkeys(map(root, self.roots))))


def _names(columns: Columns | None) -> Iterable[str]:
    return columns if isinstance(columns, Mapping) else ()


def _not_by_lines(option: str, value: Any) -> bool:
    """Return whether, with an option of the reader of JSON, a line may be no record of UTF-8."""
    if validation.is_deferred(value):
        return False
    is_lax = option == "multiline" or option.startswith("allow")
    return _is_other_encoding(option, value) or (is_lax and str(value).lower() != "false")


def _is_other_encoding(option: str, value: Any) -> bool:
    if option not in ("encoding", "charset") or validation.is_deferred(value):
        return False
    return str(value).lower().replace("_", "-") not in ("utf-8", "utf8")


def _check_inferred(kind: str, options: Any) -> None:
    if kind not in INFERRED_FORMATS and not validation.is_deferred(kind):
        raise validation.bad(
            "columns",
            INFER,
            f"declared columns or None with format={kind!r}",
            "leave it out: types are inferred for CSV and JSON files only; other formats have their own, "
            "or none",
        )
    named = {name.lower() for name in options} if isinstance(options, Mapping) else set()
    guessing = sorted(named & _GUESSING)
    if guessing:
        raise validation.bad(
            "options",
            guessing[0],
            f"options beside columns={INFER!r}",
            "leave it out: all values of the first batch are looked at, and none is changed",
        )


def _check_columns(argument: str, columns: Mapping[str, str]) -> None:
    if not columns:
        raise validation.bad(argument, columns, "at least one column, or None to take the files' own")
    for name in columns:
        if name.lower() in VIRTUAL_COLUMNS:
            raise validation.bad(
                argument,
                name,
                "names other than the virtual columns",
                f"leave {name} out: every file has it, name it in `sql`",
            )


class Refused(NamedTuple):
    """Why an option is refused."""

    does: str
    """What it would do."""
    instead: str
    """What to write instead."""
    harmless: str | None = None
    """The one value that is taken: ours."""


_OF_AVRO = "columns that a file lacks would get the defaults of another schema, or other columns' values"
_SKIPS_FILES = "a file would count as loaded without its rows being in the table"
REFUSED = {
    "pathGlobFilter": Refused(_SKIPS_FILES, "use `patterns` to choose which files count"),
    "modifiedBefore": Refused(_SKIPS_FILES, 'use mode="data_interval" with `window_end`'),
    "modifiedAfter": Refused(_SKIPS_FILES, "use `starting_timestamp`"),
    "recursiveFileLookup": Refused(
        "files that are not in the batch could be read",
        "leave it out: the provider lists the folders",
        "false",
    ),
    "ignoreCorruptFiles": Refused(
        "the rest of a file that cannot be read would be left out",
        "leave it out; repair the file, or set bad_records='quarantine'",
        "false",
    ),
    "ignoreMissingFiles": Refused(
        _SKIPS_FILES,
        "leave it out; the error about a missing file has the command that abandons its batch",
        "false",
    ),
    "mode": Refused(
        "rows that do not parse would vanish, or become NULLs",
        "leave it out; declare a column that may hold anything as string, and use try_cast in the SELECT",
        "FAILFAST",
    ),
    "columnNameOfCorruptRecord": Refused(
        "rows that do not parse would be loaded",
        "with format='text' each line is a row, which the SELECT can take apart",
    ),
    "enforceSchema": Refused(
        "the header of a CSV file would be ignored, and columns taken by position",
        "leave it out; leave `header` out too for files that have none",
        "false",
    ),
    "columnPruning": Refused(
        "a row that is too short or too long would pass if the SELECT leaves a column out",
        "leave it out",
        "false",
    ),
    "locale": Refused(
        "numbers and names of months are read as English ones, whatever this option says",
        "declare the column as string, and convert it in the SELECT",
        "en-US",
    ),
    **dict.fromkeys(
        ("avroSchema", "avroSchemaUrl", "positionalFieldMatching"),
        Refused(_OF_AVRO, "declare `columns`; with missing_columns='null' those that a file lacks are NULL"),
    ),
    "recursiveFieldMaxDepth": Refused(
        "what lies deeper would be left out",
        'leave it out; a column of a type that holds itself can be left out with extra_columns="ignore"',
    ),
    "ignoreExtension": Refused(
        _SKIPS_FILES, "leave it out; use `patterns` to choose which files count", "true"
    ),
    "basePath": Refused(
        "names of folders would become columns, whose types are guessed in each batch",
        "declare them in `partition_columns`",
    ),
    "__globPaths__": Refused("other files than those of the batch would be read", "leave it out"),
    "path": Refused("other files than those of the batch would be read", "name the folders in `roots`"),
    "paths": Refused("other files than those of the batch would be read", "name the folders in `roots`"),
    "schema": Refused("nothing: it is not an option of a reader", "declare `columns`"),
}
"""Option -> why it is refused, in any letter case: Spark does not tell options apart by case."""
_BY_LOWER_CASE = {name.lower(): refused for name, refused in REFUSED.items()}


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options with which the rows would differ from those of the files.

    :raises InputError: One of ``REFUSED`` is set, or an option is set in two spellings.
    """
    spellings: dict[str, str] = {}
    for name, value in options.items():
        spelling = spellings.setdefault(name.lower(), name)
        if spelling != name:
            raise validation.bad(
                "options",
                name,
                f"each option once: {spelling} and {name} are the same option to Spark",
                "leave one of the two out",
            )
        refused = _BY_LOWER_CASE.get(name.lower())
        if refused is None or (refused.harmless and _is(value, refused.harmless)):
            continue
        raise InputError(
            f"options[{name!r}]={value!r} is refused: {refused.does}.",
            kept="everything; nothing was read or written",
            do=refused.instead,
        )


def _is(value: Any, harmless: str) -> bool:
    """Return whether a value is the harmless one; a template is checked when the task runs."""
    return validation.is_deferred(value) or str(value).strip().lower() == harmless.lower()


# ---- options of CSV ----


SKIP_ROWS, FOOTER, DECIMAL, THOUSANDS = "skipRows", "footer", "decimalSeparator", "thousandsSeparator"
CSV_OPTIONS = {
    SKIP_ROWS: (r"[1-9][0-9]*", "a whole number, at least 1"),
    FOOTER: (r"(?s).+", "a regular expression"),
    DECIMAL: ("[.,]", "'.' or ','"),
    THOUSANDS: ("[.,' _\u00a0\u2009\u202f]", "one of . , ' _ or a blank"),
}
"""Options that Spark's reader does not have -> regular expression of their values, and what it means.

As many lines before the header, and a last line of a file that matches the footer, are no records. The others
say how numbers are written.
"""
_OF_SPARK = (
    "sep", "delimiter", "encoding", "charset", "quote", "escape", "charToEscapeQuoteEscaping", "comment",
    "header", "inferSchema", "preferDate", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace",
    "nullValue", "emptyValue", "nanValue", "positiveInf", "negativeInf", "dateFormat", "timestampFormat",
    "timestampNTZFormat", "enableDateTimeParsingFallback", "maxColumns", "maxCharsPerColumn",
    "unescapedQuoteHandling", "multiLine", "lineSep", "timeZone", "samplingRatio", "singleVariantColumn",
    "columnPruning", "enforceSchema", "locale", "mode",
)  # fmt: skip
_NAMES = {name.lower(): name for name in (*_OF_SPARK, *CSV_OPTIONS)}
_ALIKE = 0.8
"""How alike an option and a known one are, from 0 to 1, if one is meant for the other."""


def by_lower_name(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Write the names in lower case: Spark does not tell them apart by case."""
    return {name.lower(): value for name, value in (options or {}).items()}


def check_spelling(argument: str, names: Iterable[str]) -> None:
    """Refuse an option that looks like another one: Spark ignores what it does not know.

    :raises InputError: As said.
    """
    for name in names:
        close = difflib.get_close_matches(name.lower(), _NAMES, n=1, cutoff=_ALIKE)
        if close and close[0] != name.lower():
            raise validation.bad(argument, name, "options of CSV files", f"write {_NAMES[close[0]]!r}")


def own_csv_options(options: Mapping[str, Any]) -> list[str]:
    """List the options that only CSV has."""
    given = {name.lower() for name in options}
    return [name for name in CSV_OPTIONS if name.lower() in given]


def check_csv_options(argument: str, options: Mapping[str, Any]) -> None:
    """Check the options that Spark does not have, beside all others of the same files.

    :param options: By their names in lower case.

    :raises InputError: One has another value than it may have, or they do not go together.
    """
    for name in own_csv_options(options):
        value, (pattern, expected) = options[name.lower()], CSV_OPTIONS[name]
        if validation.is_deferred(value):
            continue
        is_value = re.fullmatch(pattern, str(value)) is not None
        if name == FOOTER and is_value:
            try:
                re.compile(value)
            except re.error:
                is_value = False
        if not is_value:
            raise validation.bad(f"{argument}[{name!r}]", value, expected)
    encoding = next((options[name] for name in ("encoding", "charset") if name in options), "")
    is_wide = str(encoding).upper().replace("_", "-").startswith(("UTF-16", "UTF-32"))
    if is_wide and not options.keys() & {"multiline", "linesep"}:
        do = "set multiLine='true': Spark ends a line in the middle of such a character otherwise"
        raise validation.bad(f"{argument}['encoding']", encoding, "another encoding without multiLine", do)
    quotes = options.get("unescapedquotehandling", "")
    if str(quotes).upper() == "SKIP_VALUE":
        do = "leave it out: a value with a stray quote would be NULL; 'STOP_AT_DELIMITER' takes it as it is"
        raise validation.bad(f"{argument}['unescapedQuoteHandling']", quotes, "another value", do)
    header = options.get("header", "false")
    if SKIP_ROWS.lower() in options and not (validation.is_deferred(header) or is_true(header)):
        do = "set header='true': the header shows that what is skipped before it is no record"
        raise validation.bad(argument, SKIP_ROWS, "other options without a header", do)
    fraction, thousands = options.get(DECIMAL.lower(), "."), options.get(THOUSANDS.lower())
    if fraction == thousands and not validation.is_deferred(fraction):
        do = f"set {DECIMAL}, too: a number has one before its fraction, and another between thousands"
        raise validation.bad(f"{argument}[{THOUSANDS!r}]", thousands, f"another than {DECIMAL}", do)


def is_true(value: Any) -> bool:
    """Return whether an option is set."""
    return str(value).lower() == "true"
