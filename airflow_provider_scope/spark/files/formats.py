"""What a file format gets, a ``Source``, and what it gives: ``Records``, with checks that each has to pass.

A format is a module with a function ``records(spark, entry, source)``; ``reading`` lists them by name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.exceptions import BadRecordError, InputError, mask
from airflow_provider_scope.expectations import LEVEL_HINT, RULE_HINT
from airflow_provider_scope.sources.files.spec import RESCUED_PATH
from airflow_provider_scope.spark.files.listing import FILE, KEPT, SHOWN, load, number_in_file
from airflow_provider_scope.spark.structs import is_nested, to_struct, type_text
from airflow_provider_scope.spark.values import INSTANT_FORMAT, Converted, convert, convert_inside
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.table_types import TableTypes
    from airflow_provider_scope.spark.plan import Plan


_FIXED_OPTIONS = frozenset(
    {"mode", "columnnameofcorruptrecord", "enforceschema", "columnpruning", "mergeschema"}
)
"""Options in lower case that the specs let through only with the value that they have anyway."""


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a plan that a reader of files needs."""

    format: str
    columns: T.StructType | None
    """The declared columns; None takes those of the files."""
    options: Mapping[str, str]
    """The user's options by their names in lower case, but for those that we set whatever they say.

    With options by pattern, those of all files: see ``by_options``."""
    ignores_extra: bool
    """Whether columns and keys that are not declared are left out; else they are a problem."""
    allows_missing: bool
    """Whether declared columns that a file lacks are NULL; else that is a problem."""
    infers_columns: bool
    """Whether nobody declared the columns: then a text has to come back from its type; see ``values``."""
    hinted: frozenset[str] = frozenset()
    """Columns that ``schema_hints`` declares in spite of that."""
    has_own_headers: bool = False
    """Whether each CSV file may have some of the columns, in any order, as its header says."""
    has_checked_bytes: bool = False
    """Whether the bytes of the files are known to be of their encoding: see ``text_files.check_bytes``."""
    table: TableTypes | None = None
    """The table's columns, if nobody declared those of the files."""
    partitions: T.StructType | None = None
    """The columns whose values are in the paths of the files."""
    fails_fast: bool = False
    """Whether reading fails at a record that Spark cannot parse, without its text: see ``read_records``."""
    quarantines: bool = False
    """Whether bad records are put aside, so that what is wrong with one need not fail its file."""
    rescued_from: T.StructType | None = None
    """The columns of which what does not fit is rescued; None: a record with such a value is bad."""
    options_of: Callable[[str], tuple[str, Mapping[str, str]]] | None = None
    """Gives the pattern and the options of the file of a path, if they depend on its name."""

    @property
    def is_multi_line(self) -> bool:
        return self.options.get("multiline", "false").lower() == "true"

    @property
    def encoding(self) -> str:
        """The encoding of the files, in capitals, with hyphens."""
        encoding = self.options.get("encoding", self.options.get("charset", "UTF-8"))
        return encoding.upper().replace("_", "-")

    @property
    def is_utf8(self) -> bool:
        return self.encoding in ("UTF-8", "UTF8")

    @property
    def is_wide(self) -> bool:
        """Whether each character has at least two bytes, a line end included."""
        return self.encoding.startswith(("UTF-16", "UTF-32"))

    def convert(self, text: str, kind: T.DataType, column: str) -> Converted:
        comes_back = self.infers_columns and column not in self.hinted
        return convert(text, kind, column, self.options, comes_back=comes_back)


def source_of(plan: Plan) -> Source:
    """Read a plan's source of files, with the columns as they are declared.

    :raises InputError: A declared type is not one of Spark's.
    """
    files = plan.files
    options = {name.lower(): value for name, value in (files.options or {}).items()}
    return Source(
        format=files.format,
        columns=to_struct(plan.file_columns) if plan.file_columns else None,
        options={name: value for name, value in options.items() if name not in _FIXED_OPTIONS},
        ignores_extra=files.extra_columns == "ignore",
        allows_missing=files.missing_columns == "null",
        infers_columns=plan.infers_columns,
        hinted=frozenset(plan.hints),
        partitions=to_struct(plan.partition_columns) if plan.partition_columns else None,
        has_own_headers=files.format == "csv" and plan.extends_columns,
        options_of=files.options_of if files.options_by_pattern else None,
    )


def by_options(entry: OffsetEntry, source: Source) -> list[tuple[OffsetEntry, Source]]:
    """Split a batch into the files that are read with the same options, with a source for each of them.

    :raises InputError: A file matches none of the patterns of ``options_by_pattern``, or several.
    """
    if source.options_of is None:
        return [(entry, source)]
    groups: dict[str, list[str]] = {}
    options: dict[str, Mapping[str, str]] = {}
    for path in entry.paths:
        pattern, options_of_file = source.options_of(path)
        groups.setdefault(pattern, []).append(path)
        options[pattern] = {name: v for name, v in options_of_file.items() if name not in _FIXED_OPTIONS}
    return [
        (entry.with_files(paths), replace(source, options=options[pattern], options_of=None))
        for pattern, paths in groups.items()
    ]


MARK = "@@airflow-provider-scope-record "
"""How the message of an error begins that ``fail_on_bad_record`` raises inside Spark."""
RECORD = "_scope_record"
"""Spark's text of a record that it could not parse, else NULL."""
RULE = "_scope_rule"
"""The first rule that a record breaks; NULL if it is good."""
VALUE = "_scope_value"
"""The text that breaks it."""
RAW = "_scope_raw"
"""The whole record as text, if it is bad."""
NUMBER = "_scope_number"
"""The record's number in its file, from 1."""
RESCUED = "_scope_rescued"
"""What was rescued of a record, as a JSON object; NULL if all of it is in the columns."""
_UNFIT = "_scope_unfit"
"""The columns whose value of a record is not of their type."""
_HAS_PATH = f"it has a key {RESCUED_PATH}, under which rescued data have the path of the file"


NOT_PARSED = "MALFORMED_RECORD_IN_PARSING"
"""Spark's condition for a record that it cannot parse, where it fails at it."""
PERMISSIVE = {"mode": "PERMISSIVE", "columnnameofcorruptrecord": RECORD}
"""Options of a reader that gives the text of such a record."""


def read_records(
    spark: SparkSession,
    kind: str,
    paths: Sequence[str],
    options: Mapping[str, str],
    columns: T.StructType,
    *,
    fails_fast: bool = False,
) -> DataFrame:
    """Read what Spark parses into these columns, with ``RECORD``, ``FILE`` and ``START``.

    :param fails_fast: Whether reading fails at a record that Spark cannot parse, without its text: to be able
        to give that, Spark looks each column up by its name for each record.
    """
    if fails_fast:
        # A column of the user's may have the name that Spark gives its own one otherwise: _corrupt_record.
        rows = load(spark, kind, paths, {**options, **PERMISSIVE, "mode": "FAILFAST"}, columns)
        return rows.withColumn(RECORD, F.lit(None).cast("string"))
    # Spark's own column is the last: a header is compared with those before it.
    schema = T.StructType([*columns, T.StructField(RECORD, T.StringType())])
    return load(spark, kind, paths, {**options, **PERMISSIVE}, schema)


def numbered(rows: DataFrame) -> DataFrame:
    """Add ``NUMBER`` to rows that lack it; see ``number_in_file``."""
    return rows if NUMBER in rows.columns else rows.select("*", number_in_file().alias(NUMBER))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that may be wrong with a record."""

    rule: str
    """What is wrong with a record that does not pass, in words: ``amount is not decimal(10,2)``."""
    passes: str
    """SQL over the columns of the record, which does not pass if this is false or NULL."""
    value: str
    """SQL of the text that is shown."""
    hint: str = ""
    """What may help with a record that does not pass."""
    rule_sql: str = ""
    """SQL of ``rule`` if its words depend on the record; else empty."""


@dataclass(frozen=True, slots=True)
class Records:
    """The records of some files as they were read, and how they become typed rows."""

    rows: DataFrame
    """What was read, with ``RECORD`` and ``FILE``."""
    checks: Sequence[Check]
    record: str
    """SQL of a whole record as text."""
    values: Sequence[tuple[str, str]]
    """The columns of the source: name, SQL of the typed value."""
    rescued: str = ""
    """SQL of ``RESCUED``; empty if nothing is rescued, and not even the column is made."""

    def strict(self) -> DataFrame:
        """Read the typed rows and ``FILE``; reading them fails at the first record that breaks a rule."""
        rows, checks, values = self._converted_once()
        typed = [F.expr(value).alias(name) for name, value in values]
        return fail_on_bad_record(rows, checks, self.record).select(*typed, F.col(FILE))

    def judged(self) -> DataFrame:
        """Read all records, the bad ones with NULL for each value; and which rule a record breaks.

        :return: The typed values, ``FILE``, ``RULE``, ``VALUE``, ``RAW`` and ``NUMBER``; and ``RESCUED``, if
            something may be rescued.
        """
        rows = numbered(self.rows)
        checks, values = [*self.checks], [*self.values]
        if self.rescued:
            rows = rows.select("*", F.expr(self.rescued).alias(RESCUED))
            values.append((RESCUED, RESCUED))
            # In a text that is rescued, the quote before the colon is escaped.
            key = literal(f'"{RESCUED_PATH}":')
            checks.append(Check(_HAS_PATH, f"NOT coalesce(contains({RESCUED}, {key}), false)", RESCUED))
        rows = rows.select(
            "*",
            F.expr(broken_rule(checks)).alias(RULE),
            F.expr(_broken_value(checks)).alias(VALUE),
        )
        raw = F.expr(f"CASE WHEN {RULE} IS NOT NULL THEN {self.record} END").alias(RAW)
        typed = [F.expr(f"CASE WHEN {RULE} IS NULL THEN {value} END").alias(name) for name, value in values]
        return rows.select(*typed, FILE, RULE, VALUE, raw, NUMBER)

    def _converted_once(self) -> tuple[DataFrame, list[Check], list[tuple[str, str]]]:
        """Prepare rows, checks and values; a value that a check uses, too, is computed once: as a column."""
        checks, computed = [*self.checks], dict[str, str]()
        values: list[tuple[str, str]] = []
        for name, value in self.values:
            column = f"_scope_value_{len(values)}"
            if value != quoted(name) and any(value in check.passes for check in checks):
                checks = [replace(check, passes=check.passes.replace(value, column)) for check in checks]
                computed[column] = value
            values.append((name, column if column in computed else value))
        if not computed:
            return self.rows, checks, values
        # The optimizer does not copy these columns into the checks if there is one beside them that may not
        # be computed twice, and that a check needs.
        checks[-1] = replace(checks[-1], passes=f"({checks[-1].passes} AND _scope_once >= 0)")
        columns = [F.expr(value).alias(column) for column, value in computed.items()]
        return self.rows.select("*", *columns, F.spark_partition_id().alias("_scope_once")), checks, values


def rescuing(read: Records, texts: str, fits: Mapping[str, str], declared: Sequence[str]) -> Records:
    """Rescue what does not fit into the columns, in place of checking that all of it does.

    :param read: The records, without checks that their values fit. Its values that are not declared go.
    :param texts: SQL of a map of all that a record has: its keys, and the text of each value; NULL is none.
    :param fits: Column -> SQL for whether its value of a record fits; the values of all others do.
    :param declared: The columns.
    """
    unfit = ", ".join(f"if({sql}, NULL, {literal(name)})" for name, sql in fits.items())
    unfit_names = F.expr(f"array_compact(array({unfit or 'CAST(NULL AS string)'}))")
    rows = read.rows.select("*", unfit_names.alias(_UNFIT))
    names = ", ".join(map(literal, declared))
    is_left = f"v IS NOT NULL AND (array_contains({_UNFIT}, k) OR NOT array_contains(array({names}), k))"
    values = [
        (name, is_fit(name, value) if name in fits else value)
        for name, value in read.values
        if name in declared
    ]
    rescued = f"nullif(to_json(map_filter({texts}, (k, v) -> {is_left})), '{{}}')"
    return replace(read, rows=rows, values=values, rescued=rescued)


def rescuing_columns(
    read: Records, layout: T.StructType, fits: Mapping[str, str], declared: Sequence[str]
) -> Records:
    """Rescue typed values that do not fit, as their texts.

    :param read: As for ``rescuing``.
    :param layout: The columns as they are read.
    :param fits: Column of the layout -> SQL for whether its value of a record fits; all others do.
    :param declared: The columns.
    """
    if not fits:
        return read
    fields = T.StructType([layout[name] for name in fits])
    texts = {field.name: _text_of(field) for field in fields}
    checks = [
        Check(
            f"{name} {_NO_TEXT}", f"({fits[name]} OR {sql})", f"make_valid_utf8({texts[name]})", _NO_TEXT_HINT
        )
        for name, sql in rules_inside(fields, (T.StringType,), "is_valid_utf8({0})")
    ]
    pairs = ", ".join(f"{literal(name)}, {text}" for name, text in texts.items())
    return rescuing(replace(read, checks=[*read.checks, *checks]), f"map({pairs})", fits, declared)


_NO_TEXT = "has bytes that are not UTF-8, which rescued data cannot hold"
_NO_TEXT_HINT = "declare it as string: a column keeps its bytes"


def _text_of(field: T.StructField) -> str:
    """Write SQL of the text of a value: JSON of what has values inside, base64 of bytes, else a CAST."""
    name = quoted(field.name)
    if isinstance(field.dataType, T.BinaryType):
        return f"base64({name})"
    if is_nested(field.dataType):
        return _json_of_value(name)
    return f"CAST({name} AS string)"


def rules_inside(
    columns: T.StructType, kinds: tuple[type[T.DataType], ...], rule: str
) -> list[tuple[str, str]]:
    """List the columns with values of some types at any depth, and SQL that all of these pass a rule.

    :param rule: SQL with ``{0}`` for the value, and ``{1}`` for its type. NULL passes.
    """

    def leaf(value: str, kind: T.DataType) -> Converted:
        return Converted(value, rule.format(value, type_text(kind)) if isinstance(kind, kinds) else None)

    rules = []
    for field in columns:
        name = quoted(field.name)
        passes = convert_inside(name, field.dataType, leaf, checks_keys=True).is_exact
        if passes:
            rules.append((field.name, f"({name} IS NULL OR {passes})"))
    return rules


def is_fit(column: str, value: str) -> str:
    """Write SQL of the value of a column, NULL if it does not fit."""
    return f"if(array_contains({_UNFIT}, {literal(column)}), NULL, {value})"


def parse_check(rule: str, hint: str = "", rule_sql: str = "") -> Check:
    """Check that Spark could parse a record.

    :param rule_sql: As ``Check.rule_sql``.
    """
    return Check(rule, f"{RECORD} IS NULL", RECORD, hint, rule_sql)


def type_check(field: T.StructField, text: str, is_exact: str) -> Check:
    """Check that a text that is not NULL is a value of the declared type.

    :param text: SQL of the text.
    :param is_exact: SQL for whether it is, of a text that is not NULL.
    """
    is_time = isinstance(field.dataType, (T.DateType, T.TimestampType, T.TimestampNTZType))
    return Check(
        f"{field.name} is not {field.dataType.simpleString()}",
        f"({text} IS NULL OR {is_exact})",
        quoted(field.name),
        _TIME_HINT if is_time else _TEXT_HINT,
    )


_TEXT_HINT = "declare it as string, and use try_cast in the SELECT"
_TIME_HINT = f"`dateFormat` and `timestampFormat` set other formats; or {_TEXT_HINT}"


def record_of(names: Sequence[str]) -> str:
    """Write SQL of a whole record as text: as it stands in the file if it did not parse, else as JSON.

    :param names: The columns that were read.
    """
    return f"coalesce({RECORD}, {json_of(*map(quoted, names))})"


def not_compiled(value: str) -> str:
    """Write SQL of the same value which Spark interprets, and does not compile into the code for each record.

    The size of that code makes it slow.

    :param value: SQL that is rarely evaluated, and long.
    """
    # Spark interprets what stands in a lambda. Compiled, such a text makes the code slower than all checks.
    return f"element_at(transform(array(0), _scope_i -> {value}), 1)"


def json_of(*columns: str) -> str:
    """Write SQL of a row as JSON, with its NULLs and microseconds.

    :param columns: SQL of its columns.
    """
    return _json_of_value(f"struct({', '.join(columns)})")


def _json_of_value(value: str) -> str:
    """Write SQL of a struct, an array or a map as JSON, in the same way."""
    options = {
        "ignoreNullFields": "false",
        "timestampFormat": INSTANT_FORMAT,
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    pairs = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    return f"to_json({value}, map({pairs}))"


def broken_rule(checks: Sequence[Check]) -> str:
    """Write SQL of the first rule that a record breaks, NULL if it is good."""
    return _of_first_broken(checks, [check.rule_sql or literal(check.rule) for check in checks])


def _broken_value(checks: Sequence[Check]) -> str:
    """Write SQL of the text that goes with the first rule that a record breaks."""
    return _of_first_broken(checks, [f"CAST({check.value} AS string)" for check in checks])


def _of_first_broken(checks: Sequence[Check], values: Sequence[str]) -> str:
    cases = " ".join(
        f"WHEN NOT coalesce({check.passes}, false) THEN {value}"
        for check, value in zip(checks, values, strict=True)
    )
    return f"CASE {cases} END" if checks else "CAST(NULL AS string)"


def fail_on_bad_record(rows: DataFrame, checks: Sequence[Check], record: str, file: str = FILE) -> DataFrame:
    """Make reading the rows fail at the first record that breaks a rule.

    :param rows: The columns that the checks name.
    :param record: SQL of the whole record, for the message.
    :param file: SQL of its file.
    """
    if not checks:
        return rows
    report = not_compiled(
        f"to_json(named_struct('file', {file}, 'rule', {broken_rule(checks)}, "
        f"'value', left({_broken_value(checks)}, {SHOWN}), 'record', left({record}, {SHOWN}), "
        f"'hint', {_of_first_broken(checks, [literal(check.hint) for check in checks])}))"
    )
    passes = " AND ".join(f"coalesce({check.passes}, false)" for check in checks)
    # What is not deterministic stays where it is: the optimizer must not drop a bad record by the user's
    # WHERE first, nor leave out what the SELECT does not need: the check, and the reading of its columns.
    passes += " AND spark_partition_id() >= 0"
    return rows.where(F.expr(f"if({passes}, true, CAST(raise_error(concat('{MARK}', {report})) AS boolean))"))


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that breaks a rule, as ``fail_on_bad_record`` reports it."""

    file: str | None
    """None if it is not known."""
    rule: str
    value: str | None
    record: str | None
    hint: str
    number: int | None = None
    """Its place among the records of its file, from 1; None if it is not known."""

    @property
    def is_of_select(self) -> bool:
        """Whether it is a row of the SELECT, which has no place in a file itself."""
        return self.hint in (RULE_HINT, LEVEL_HINT)

    def error(self, place: str) -> BadRecordError:
        """Make the error of a batch that stops at this record; its ``do`` is the hint alone, see ``choices``.

        :param place: The file as users write it, and the batch.
        """
        value = f": {mask(self.value)!r}" if self.value is not None and self.value != self.record else ""
        record = f" The record: {mask(self.record)!r}." if self.record else ""
        number = f" (number {self.number:,} of the file)" if self.number else ""
        return BadRecordError(
            f"{place} has a record that cannot be loaded{number}: {self.rule}{value}.{record}",
            kept=KEPT,
            do=self.hint,
        )


def bad_record(text: str) -> BadRecord | None:
    """Find the report of ``fail_on_bad_record`` in the text of Spark's error.

    :return: None if the error is another one.
    """
    # In an error about the SELECT the mark stands, too: as a part of the query.
    report = next((rest for rest in text.split(MARK)[1:] if rest.startswith("{")), None)
    if report is None:
        return None
    fields: dict[str, Any] = json.JSONDecoder().raw_decode(report)[0]
    return BadRecord(
        file=fields.get("file"),
        rule=fields["rule"],
        value=fields.get("value"),
        record=fields.get("record"),
        hint=fields["hint"],
    )


_OTHER_KEYS = re.compile('"keyType":(?!"(string|varchar|char))')


def check_keys(columns: T.StructType) -> None:
    """Refuse maps whose keys are not read as texts, which is what they are in JSON.

    :raises InputError: There is one.
    """
    for field in columns:
        if _OTHER_KEYS.search(field.dataType.json()):
            kind = field.dataType.simpleString()
            raise InputError(
                f"The column {field.name!r} is {kind}, and the keys of JSON are texts.",
                kept=KEPT,
                do="declare its keys as string in `columns`, and CAST the column in the SELECT",
            )
