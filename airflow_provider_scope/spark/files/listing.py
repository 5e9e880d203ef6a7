"""How Spark is given the files of a batch, the check that it reads no others, and errors about bad files."""

from __future__ import annotations

import functools
import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import (
    NO_ROW_WRITTEN,
    BadFileError,
    BadRecordError,
    ScopeProviderError,
    SourceMismatchError,
    SourceUnreadableError,
    mask,
)
from airflow_provider_scope.expectations import LEVEL_HINT, SHARE_HINT
from airflow_provider_scope.spark import settings
from airflow_provider_scope.spark.session import TOO_MANY_FIELDS, short_cause, with_settings
from airflow_provider_scope.sql import literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import types as T  # noqa: N812

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.plan import Plan


AVRO_READER = "org.apache.spark.sql.avro.AvroFileFormat"
"""The class by which Spark is asked to read Avro: 4.2 has it, but knows the format's name by a jar."""
_GLOB_CHARACTERS = re.compile(r"[\\\[\]{}*?]")
_PLAIN = re.compile(r"[\w/:.=@-]*", re.ASCII)
"""Paths that Spark spells as they are."""
FILE = "_scope_file"
"""The column with the file of a record: its path as it is, which Spark itself encodes as a URI."""
START = "_scope_start"
"""The column with the place in the file where the part begins that a record was read with."""
_IN_ORDER = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
}
_LISTED_BY_DRIVER = {"spark.sql.sources.parallelPartitionDiscovery.threshold": str(1 << 30)}
"""Of files on a disk, the driver has the status before a job for that has begun."""
NAMED = 5
"""Files or rules that an error names."""
SHOWN = 500
"""Characters that an error shows of a text: of a record, a line, a value, or a reader's own message."""


def _as_pattern(uri: str) -> str:
    r"""Escape a path so that, read as a glob, it means that file alone: ``w_[x].csv`` -> ``w_\[x\].csv``.

    The option that switches globbing off (``__globPaths__=false``) is worse: in Spark 4.2 each path that
    looks like a glob then adds the whole list once more (SPARK-58518).
    """
    return _GLOB_CHARACTERS.sub(r"\\\g<0>", uri)


def same_key(uri: str) -> str:
    """Spell a local URI in one way: Java writes ``file:/x``, others ``file:///x``."""
    return re.sub("^file:/+", "file:///", uri)


def load(
    spark: SparkSession,
    kind: str,
    paths: Sequence[str],
    options: Mapping[str, str] = MappingProxyType({}),
    schema: T.StructType | None = None,
) -> DataFrame:
    """Read exactly these files: their columns, ``FILE`` and ``START``.

    :param kind: The format, as Spark calls it.
    :raises SourceMismatchError: Spark would read other files.
    """
    together = [path for path in paths if not _is_alone(path)]
    frames = []
    for group in ([together] if together else []) + [[path] for path in paths if _is_alone(path)]:
        reader = spark.read.format(AVRO_READER if kind == "avro" else kind).options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        # By `load`: the arguments of `csv` or `text` have defaults that win over the options.
        if group is together:
            with with_settings(spark, _LISTED_BY_DRIVER if all(map(_is_on_disk, group)) else {}):
                data = reader.load([_as_pattern(path) for path in group])
        else:
            data = reader.option("__globPaths__", "false").load(group)
        check_listed(data, group)
        metadata = data.metadataColumn("_metadata")
        file = metadata.getField("file_path")
        if not all(map(_PLAIN.fullmatch, group)):
            file = F.url_decode(F.replace(file, F.lit("+"), F.lit("%2B")))
        places = {FILE: file, START: metadata.getField("file_block_start")}
        frames.append(data.select("*", *[column.alias(name) for name, column in places.items()]))
    return union(frames)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Put the rows of all frames together, of which there is at least one; they have the same columns."""
    return functools.reduce(lambda rows, frame: rows.unionByName(frame), frames)


def for_inference(
    spark: SparkSession, kind: str, paths: Sequence[str], options: Mapping[str, str]
) -> DataFrame:
    """Let Spark infer columns. A file may be among those that it reads several times, which changes none."""
    reader = spark.read.format(kind).options(**options)
    if any(map(_is_alone, paths)):
        return reader.option("__globPaths__", "false").load([*paths])
    return reader.load([*map(_as_pattern, paths)])


def _is_on_disk(path: str) -> bool:
    return path.startswith("file:")


def _is_alone(path: str) -> bool:
    # Hadoop takes a folder such as 10:30 for a URI once it looks for patterns: such a file is read alone.
    return bool(_GLOB_CHARACTERS.search(path)) and ":" in path.partition("://")[2]


def in_order(spark: SparkSession) -> AbstractContextManager[None]:
    """Make Spark read each file as one partition, in which its rows keep their order and can be numbered."""
    return with_settings(spark, _IN_ORDER)


def few_tasks(spark: SparkSession, files: int) -> AbstractContextManager[None]:
    """Read small files in about one task for each core, in local mode; a value of the user's stays.

    A cluster stays as it is: it may give the application more executors than it has when a batch begins.
    """
    context = spark.sparkContext
    is_set = spark.conf.get(settings.OPEN_COST, None) is not None
    if is_set or not str(context.master).startswith("local"):
        return nullcontext()
    cost = settings.open_cost(files, context.defaultParallelism)
    return with_settings(spark, {settings.OPEN_COST: f"{cost}b"})


def number_in_file() -> Column:
    """Count the rows of a file from 1; only with ``in_order``, and before any filter."""
    return (F.monotonically_increasing_id() % (1 << 33)) + 1


def check_listed(data: DataFrame, paths: Sequence[str]) -> None:
    """Check that a scan is going to read exactly the files that it was given, each as often as it is given.

    :param data: What ``spark.read`` gave, before anything was done with it.
    :raises SourceMismatchError: Spark would read a file twice, not at all, or another one.
    """
    leaves = data._jdf.queryExecution().analyzed().collectLeaves()
    names = leaves.apply(0).relation().location().inputFiles()
    counts = Counter(same_key(unquote(name)) for name in names)
    expected_counts = Counter(same_key(path) for path in paths)
    if counts == expected_counts:
        return
    surplus, missing = counts - expected_counts, expected_counts - counts
    differences = [
        f"{name} {counts[name]} times instead of {expected_counts[name]}" for name in [*surplus, *missing]
    ]
    raise SourceMismatchError(
        f"Spark would read other files than the batch has: {'; '.join(differences[:NAMED])}"
        + (f"; and {len(differences) - NAMED} more." if len(differences) > NAMED else "."),
        kept=NO_ROW_WRITTEN,
        do="report it with the names of the files and the version of Spark; renaming them is a workaround",
    )


# ---- files that are not what the source says, and the error that names them ----

KEPT = "the batches before it; this one wrote no row and stays logged"
UNDECLARED = "it has keys"
"""How the fault of a JSON file begins that has keys which are not among its columns."""
NOT_SEEN = (
    "give Spark's machines the same disks under the same paths; if the name is not ASCII, set LC_ALL=C.UTF-8 "
    "for them"
)
_FILE_IN_MESSAGE = re.compile(r"\s*CSV file: .*$|^\S+:/.*?(?=is not a Parquet file)", re.DOTALL)
"""The file in the message of a reader. We name it ourselves; and with it, each file had a rule of its own."""
_CUT = "bring the whole file: it was cut, or is still being written"
_NOT_PACKED = "rename it or compress it: its name says that it is compressed, and it is not, or otherwise"
GZIP_ENDS = (_CUT, _NOT_PACKED)
"""Hints that a gzip file may get because of bytes after its end."""
AFTER_GZIP = "there are bytes after the end of its compressed data that are no gzip"
AFTER_GZIP_HINT = "write the file again without them; what comes before them is whole"
HEADER_HINT = (
    "all headers of a batch have to be its columns, declared or inferred, in one order, with `sep` between "
    "them: correct `columns` or `sep`, or set header=false if the files have none"
)
OTHER_HEADER_HINT = f"{HEADER_HINT}; declared columns may be in any order with `rescued_data_column`"
_DAMAGED = "bring the file again: it is damaged"
_FAULTS = {
    "CSV header": OTHER_HEADER_HINT,
    TOO_MANY_FIELDS: "set maxColumns to the number of fields of the longest record",
    "TextParsingException": "a quote in a quoted field is doubled, unless `escape` says otherwise; "
    "unescapedQuoteHandling='STOP_AT_DELIMITER' takes such fields as they are",
    "ZipException|not a gzip file|incorrect header check|Stream is not BZip2": _NOT_PACKED,
    "Unexpected end of input stream|unexpected end of stream$|Unexpected end of ZLIB": _CUT,
    "Avro file ends inside": _CUT,
    "not an Avro file|its schema is not": "",
    "an empty block of the Avro file": "write the file again without it",
    "block of the Avro file is damaged|Block read partially|Checksum failure|CRC error|"
    r"not in the BZip2 format|^org\.tukaani\.xz\.": _DAMAGED,
    "CRC failure|crc error|incorrect data check|bad block header|invalid (bit|code|distance|literal|block|"
    "stored)|match decompressed size|FAILED_TO_UNCOMPRESS|Unknown encoding kind|(Read|Vulong) past EOF|"
    "Can't finish byte read": _DAMAGED,
    "is not a Parquet file|can not read class|Malformed ORC file|Protocol message|a future ORC version": "",
    r"^java\.lang\.(\w*IndexOutOfBounds|NegativeArraySize|Arithmetic)Exception|^java\.util\.zip\.|"
    r"^(shaded\.parquet\.)?org\.apache\.(avro|parquet|orc|thrift)\.|^com\.github\.luben\.zstd\.": _DAMAGED,
}
"""Patterns of what a reader says of a file that is surely at fault itself -> what may help.

Collected by reading files in which each byte in turn was changed, or which were cut off after it. No message
of a store that does not answer matches.
"""


_STRAY_QUOTE = "a quote in a quoted field is not doubled, or text stands after its closing quote"
_PARSED_FIELD = re.compile(r"content parsed=(.+?)(?:\s*CSV file:|$)")
"""The beginning of the field at which the reader of CSV stopped."""


class NoColumnsError(Exception):
    """No file of a batch has a column, and none are declared: the batch has no rows."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file cannot be loaded."""

    file: str
    """Its path as it is, whatever Java writes between scheme and path."""
    fault: str
    """What is wrong with it, in words."""
    text: str | None = None
    """A text of the file that shows the fault."""
    hint: str = ""
    """What may help."""
    line: int | None = None
    """The number of the line with that text, from 1."""

    def message(self) -> str:
        """Tell the fault and the text that shows it, without secrets."""
        place = f"line {self.line:,}: " if self.line else ""
        return f"{self.fault} ({place}{mask(self.text)!r})" if self.text else self.fault

    def details(self) -> str | None:
        """Tell the text that shows the fault, and the hint."""
        place = f"line {self.line:,}" if self.line else None
        return ": ".join(part for part in (place, self.text, self.hint) if part) or None


def bad_files(entry: OffsetEntry, problems: Sequence[Problem], *, may_be_more: bool = False) -> BadFileError:
    """Make the error for files of a batch with problems; its ``files`` say what is wrong with each.

    Its ``do`` is the hint alone; see ``choices``.

    :param may_be_more: Whether the reading stopped at the first of them, so that others were not looked at.
    """
    paths = file_paths(entry, [problem.file for problem in problems])
    problems = [replace(problem, file=paths[problem.file]) for problem in problems]
    messages = [f"{problem.file}: {problem.message()}" for problem in problems[:NAMED]]
    more = f"; and {len(problems) - NAMED} more files" if len(problems) > NAMED else ""
    hint = next((problem.hint for problem in problems if problem.hint), "")
    count = len(entry.files)
    subject = f"The file of batch {entry.seq}"
    if count > 1:
        subject = f"{len(problems)} of the {count:,} files of batch {entry.seq}"
        if may_be_more:
            subject = f"At least {subject}"
    error = BadFileError(f"{subject} cannot be loaded: {'; '.join(messages)}{more}.", kept=KEPT, do=hint)
    error.files = {problem.file: (problem.fault, problem.details()) for problem in problems}
    return error


def choices(plan: Plan, err: BadFileError | BadRecordError) -> str:
    """Say what can be done about files or records that cannot be loaded, a line for each choice.

    :param err: Its ``do`` is the hint for this very problem; empty if there is none.
    """
    hint = err.do
    faults = [fault for fault, _ in err.files.values()] if isinstance(err, BadFileError) else None
    lines = [hint or "correct the declaration (`columns`, `options`)"]
    if plan.infers_columns and not plan.has_to_infer:
        has_new_keys = any(fault.startswith(UNDECLARED) or "CSV header" in fault for fault in faults or ())
        if has_new_keys and plan.with_spec(schema_evolution="add").extends_columns != plan.extends_columns:
            lines.append(
                'set table=TableSpec(schema_evolution="add"): columns that come later are added to the '
                "table, as texts, or with the types in `schema_hints`"
            )
        if not hint.startswith("declare"):
            lines.append("declare `columns` with types for all files")
        lines.append(
            "run once with full_refresh=True, which infers the columns again: these were inferred from an "
            "earlier batch (`airflow scope status` shows them)"
        )
    is_logged = ", if it is logged already" if plan.reads_only else ""
    lines.append(
        f"repair the file, and abandon the batch with `airflow scope abandon`{is_logged}: the next run loads "
        "its files as they are then"
    )
    # An error that names no file is about all of them together: none can be put aside. Nor can a row whose
    # rule says what becomes of it.
    if not plan.has_quarantine and faults != [] and hint not in (LEVEL_HINT, SHARE_HINT):
        lines.append('set bad_records="quarantine", which puts aside what cannot be loaded')
    return "one of these:\n" + "\n".join(f"- {choice}" for choice in lines)


def with_lines(spark: SparkSession, entry: OffsetEntry, problems: Sequence[Problem]) -> list[Problem]:
    """Find the line numbers of the problems that an error names, in files with a record on each line.

    It is the first line in the file that begins with the problem's text.
    """
    with_line = []
    for problem in problems[:NAMED]:
        path = path_of(entry, problem.file)
        # By a comparison of texts: bytes that are not UTF-8 are shown as replacement characters.
        has_text = f"startswith(make_valid_utf8(value), {literal(problem.text or '')})"
        with in_order(spark):
            lines = load(spark, "text", [path], {"lineSep": "\n"})
            numbered = lines.select("value", number_in_file().alias("number"))
            first = numbered.where(has_text).select("number").limit(1).collect() if problem.text else []
        with_line.append(replace(problem, line=first[0].number if first else None))
    return [*with_line, *problems[NAMED:]]


def read_problem(file: str, message: str) -> Problem | None:
    """Say why a file could not be read, if that is surely the file's own fault.

    :param message: The innermost cause, with its class.
    :return: None if it may be a passing failure of the store.
    """
    hint = next((hint for pattern, hint in _FAULTS.items() if re.search(pattern, message)), None)
    if hint is None:
        return None
    if re.search("Unescaped quote|following quoted value", message):
        field = _PARSED_FIELD.search(message)
        return Problem(file, _STRAY_QUOTE, field[1][:SHOWN] if field else None, hint)
    cause = _FILE_IN_MESSAGE.sub("", message.partition(": ")[2] or message)
    return Problem(file, f"it cannot be read: {cause[:SHOWN].rstrip('.')}", hint=hint)


def unreadable_footers(
    entry: OffsetEntry, failures: Sequence[tuple[str, Exception, bool]]
) -> ScopeProviderError:
    """Make the error for footers that could not be read; retried unless all are surely the files' fault.

    :param failures: Path and cause of each, and whether the bytes of the file could be read.
    """
    problems = []
    for path, cause, is_readable in failures:
        message = short_cause(cause)
        problem = read_problem(path, message)
        if problem is None and is_readable:
            problem = Problem(path, f"it cannot be read: {message.rstrip('.')}", hint=_DAMAGED)
        if problem is None:
            return SourceUnreadableError(
                f"The columns of {path} of batch {entry.seq} could not be read: {message}.",
                kept=KEPT,
                do=f"the next try reads it again. If the file is there, {NOT_SEEN}",
            )
        problems.append(problem)
    return bad_files(entry, problems)


def file_paths(entry: OffsetEntry, files: Iterable[str]) -> dict[str, str]:
    """Find the path of each file as the batch has it: Java writes ``file:/x``."""
    paths_by_key = {same_key(path): path for path in entry.paths}
    return {file: paths_by_key.get(same_key(file), file) for file in files}


def path_of(entry: OffsetEntry, file: str) -> str:
    """Find the path of one file; see ``file_paths``, which looks through the batch once for many."""
    return file_paths(entry, [file])[file]


def place_of(entry: OffsetEntry, file: str | None) -> str:
    """Name the file of a record, if it is known, and its batch, for an error."""
    return f"Batch {entry.seq}" if file is None else f"The file {path_of(entry, file)} of batch {entry.seq}"
