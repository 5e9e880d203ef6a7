"""The files of a batch as Spark is told about them, proof that it reads those alone, and bad files."""

from __future__ import annotations

import functools
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from airflow_provider_scope.spark.session import TOO_MANY_FIELDS, short_cause, with_settings
from airflow_provider_scope.sql import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.plan import Plan
    from airflow_provider_scope.values import FileEntry


_PATTERN = re.compile(r"[\\\[\]{}*?]")
FILE = "_scope_file"
"""The column with the file of a record, as Spark spells it."""
START = "_scope_start"
"""The column with the place in the file where the part begins that a record was read with."""
_IN_ORDER = {
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
}
NAMED = 5
"""Files that an error names."""


def as_pattern(uri: str) -> str:
    r"""Give a path that, taken for a glob, means that file alone: ``w_[x].csv`` -> ``w_\[x\].csv``.

    The option that switches globbing off (``__globPaths__=false``) is worse: in Spark 4.2 each path that
    looks like a glob then adds the whole list once more (SPARK-58518).
    """
    return _PATTERN.sub(r"\\\g<0>", uri)


def same_key(uri: str) -> str:
    """Give one spelling of a local URI: Java writes ``file:/x``, others ``file:///x``."""
    return re.sub("^file:/+", "file:///", uri)


def load(
    reader: Callable[[], DataFrameReader], paths: Sequence[str], *, with_start: bool = False
) -> DataFrame:
    """Read exactly these files: their columns, and ``FILE``.

    :param reader: Gives a reader with format, schema and options.
    :param with_start: Whether ``START`` is wanted, too.
    :raises SourceMismatchError: Spark would read other files.
    """
    alone = [path for path in paths if _is_alone(path)]
    together = [path for path in paths if not _is_alone(path)]
    frames = []
    if together:
        data = reader().load([as_pattern(path) for path in together])
        frames.append(_with_file(data, together, with_start=with_start))
    literally = [reader().option("__globPaths__", "false").load([path]) for path in alone]
    frames += [
        _with_file(data, [path], with_start=with_start) for data, path in zip(literally, alone, strict=True)
    ]
    return union(frames)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Give the rows of frames with the same columns."""
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return rows


def for_inference(paths: Sequence[str]) -> list[str]:
    """Give paths from which columns are inferred: all but those that ``load`` has to read alone."""
    together = [as_pattern(path) for path in paths if not _is_alone(path)]
    return together or [*paths[:1]]


def _is_alone(path: str) -> bool:
    # Hadoop takes a folder such as 10:30 for a URI once it looks for patterns: such a file is read alone.
    return bool(_PATTERN.search(path)) and ":" in path.partition("://")[2]


def _with_file(data: DataFrame, paths: Sequence[str], *, with_start: bool) -> DataFrame:
    check_listed(data, paths)
    about = data.metadataColumn("_metadata")
    more = [about.getField("file_block_start").alias(START)] if with_start else []
    return data.select("*", about.getField("file_path").alias(FILE), *more)


@contextmanager
def in_order(spark: SparkSession) -> Iterator[None]:
    """Let each file be one partition, in which its rows have their order and can be numbered."""
    with with_settings(spark, _IN_ORDER):
        yield


def number_in_file() -> Column:
    """Give the number of a row in its file, from 1; only with ``in_order``, and before any filter."""
    return (F.monotonically_increasing_id() % (1 << 33)) + 1


def check_listed(data: DataFrame, paths: Sequence[str]) -> None:
    """Compare the files that a scan is going to read with those it was given, each as often as it is there.

    :param data: What ``spark.read`` gave, before anything was done with it.
    :raises SourceMismatchError: Spark would read a file twice, not at all, or another one.
    """
    leaves = data._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001 - no Python API
    names = leaves.apply(0).relation().location().inputFiles()
    found = Counter(same_key(unquote(name)) for name in names)
    wanted = Counter(same_key(path) for path in paths)
    if found == wanted:
        return
    more, fewer = found - wanted, wanted - found
    told = [f"{name} {found[name]} times instead of {wanted[name]}" for name in [*more, *fewer]]
    raise SourceMismatchError(
        f"Spark would read other files than the batch has: {'; '.join(told[:NAMED])}"
        + (f"; and {len(told) - NAMED} more." if len(told) > NAMED else "."),
        kept=NO_ROW_WRITTEN,
        do="report it with the names of the files and the version of Spark; renaming them is a workaround",
    )


# ---- files that are not what the source says, and the error that names them ----

KEPT = "the batches before it; this one wrote no row and stays logged"
UNDECLARED = "it has keys"
"""How the problem of a JSON file begins that has keys which its columns do not have."""
NOT_SEEN = (
    "give Spark's machines the same disks under the same paths; if the name is not ASCII, set LC_ALL=C.UTF-8 "
    "for them"
)
_SHOWN = 400
"""Characters of a reader's own words that are told."""
_ITS_FILE = re.compile(r"\s*CSV file: .*$|^\S+:/.*?(?=is not a Parquet file)", re.DOTALL)
"""The file in the words of a reader: we name it ourselves, and it would make a rule of its own of each."""
_CUT = "bring the whole file: it was cut, or is still being written"
_NOT_PACKED = "rename it or compress it: its name says that it is compressed, and it is not, or otherwise"
GZIP_ENDS = (_CUT, _NOT_PACKED)
"""What may be said of a gzip file because of what lies behind its end."""
BEHIND_GZIP = "there are bytes behind the end of its compressed data that are no gzip"
BEHIND_GZIP_HINT = "write the file again without them; what comes before them is whole"
HEADER_HINT = (
    "the header has to be the declared columns, in their order, with `sep` between them: correct `columns`, "
    "or set `sep`; or set header=false if the files have none"
)
_DAMAGED = "bring the file again: it is damaged"
_FAULTS = {
    "CSV header": HEADER_HINT,
    TOO_MANY_FIELDS: "set maxColumns to the number of fields of the longest record",
    "TextParsingException": "a quote in a quoted field is doubled, unless `escape` says otherwise; "
    "unescapedQuoteHandling='STOP_AT_DELIMITER' takes such fields as they are",
    "ZipException|not a gzip file|incorrect header check|Stream is not BZip2": _NOT_PACKED,
    "Unexpected end of input stream|unexpected end of stream$|Unexpected end of ZLIB": _CUT,
    "CRC failure|crc error|incorrect data check|bad block header|invalid (bit|code|distance|literal|block|"
    "stored)|match decompressed size|FAILED_TO_UNCOMPRESS|Unknown encoding kind|(Read|Vulong) past EOF|"
    "Can't finish byte read": _DAMAGED,
    "is not a Parquet file|can not read class|Malformed ORC file|Protocol message|a future ORC version": "",
    r"^java\.lang\.(\w*IndexOutOfBounds|NegativeArraySize|Arithmetic)Exception|^java\.util\.zip\.|"
    r"^(shaded\.parquet\.)?org\.apache\.(parquet|orc|thrift)\.|^com\.github\.luben\.zstd\.": _DAMAGED,
}
"""What a reader says of a file that is surely at fault itself, as patterns -> what may help.

Collected by reading files in which each byte in turn was changed, or behind which the rest was cut off. What
a store says when it does not answer is none of these.
"""


_STRAY_QUOTE = "a quote in a quoted field is not doubled, or text stands behind its closing quote"
_FIELD = re.compile(r"content parsed=(.+?)(?:\s*CSV file:|$)")
"""The beginning of the field at which the reader of CSV stopped."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file cannot be loaded."""

    file: str
    """As Spark spells it, or its URI."""
    what: str
    text: str | None = None
    """A text of the file that shows it."""
    hint: str = ""
    """What may help."""
    line: int | None = None
    """The number of the line with that text, from 1."""

    def told(self) -> str:
        """Say what is wrong, without secrets."""
        place = f"line {self.line:,}: " if self.line else ""
        return f"{self.what} ({place}{mask(self.text)!r})" if self.text else self.what

    def details(self) -> str | None:
        """Give what shows it, and what may help."""
        place = f"line {self.line:,}" if self.line else None
        return ": ".join(part for part in (place, self.text, self.hint) if part) or None


def bad_files(entry: OffsetEntry, problems: Sequence[Problem]) -> BadFileError:
    """Give the error for files of a batch with problems; its ``files`` tell what is wrong with each.

    Its ``do`` is the hint alone; see ``choices``.
    """
    told = [f"{path_of(entry, problem.file)}: {problem.told()}" for problem in problems[:NAMED]]
    more = f"; and {len(problems) - NAMED} more files" if len(problems) > NAMED else ""
    hint = next((problem.hint for problem in problems if problem.hint), "")
    count = len(entry.files)
    what = f"The file of batch {entry.seq}"
    if count > 1:
        what = f"{len(problems)} of the {count:,} files of batch {entry.seq}"
    error = BadFileError(f"{what} cannot be loaded: {'; '.join(told)}{more}.", kept=KEPT, do=hint)
    error.files = {path_of(entry, problem.file): (problem.what, problem.details()) for problem in problems}
    return error


def choices(plan: Plan, err: BadFileError | BadRecordError) -> str:
    """Say what can be done about files or records that cannot be loaded, a line for each choice.

    :param err: Its ``do`` is what may help against the very problem; empty if nothing is known.
    """
    hint = err.do
    problems = [what for what, _ in err.files.values()] if isinstance(err, BadFileError) else None
    found = [hint or "correct the declaration (`columns`, `options`)"]
    if plan.files.infers_columns and not plan.files.has_to_infer:
        has_new_keys = any(what.startswith(UNDECLARED) for what in problems or ())
        if has_new_keys and replace(plan, schema_evolution="add").extends_columns != plan.extends_columns:
            found.append(
                'set table=TableSpec(schema_evolution="add"): keys that come later are inferred from their '
                "batch, and added to the table as columns"
            )
        if not hint.startswith("declare"):
            found.append("declare `columns` with types for all files")
        found.append(
            "run once with full_refresh=True, which infers the columns again: these were inferred from an "
            "earlier batch (`airflow scope status` shows them)"
        )
    found.append(
        "repair the file, and abandon the batch with `airflow scope abandon`: the next run loads its files "
        "as they are then"
    )
    # Problems of no file alone are those of all of them: none is put aside.
    if plan.files.bad_records != "quarantine" and problems != []:
        found.append('set bad_records="quarantine", which puts aside what cannot be loaded')
    return "one of these:\n" + "\n".join(f"- {choice}" for choice in found)


def with_lines(spark: SparkSession, entry: OffsetEntry, problems: Sequence[Problem]) -> list[Problem]:
    """Find the lines of the problems that an error names: the first in the file that begins like its text.

    For files with a record on each line.
    """
    found = []
    for problem in problems[:NAMED]:
        path = path_of(entry, problem.file)
        # By a comparison of texts: bytes that are not UTF-8 are shown as replacement characters.
        alike = f"startswith(make_valid_utf8(value), {literal(problem.text or '')})"
        with in_order(spark):
            lines = load(lambda: spark.read.format("text").option("lineSep", "\n"), [path])
            numbered = lines.select("value", number_in_file().alias("number"))
            first = numbered.where(alike).select("number").limit(1).collect() if problem.text else []
        found.append(replace(problem, line=first[0].number if first else None))
    return [*found, *problems[NAMED:]]


def unread(file: str, said: str) -> Problem | None:
    """Give the problem of a file that could not be read, if that is surely the file's own fault.

    :param said: The innermost cause, with its class.
    :return: None if it may be a passing failure of the store.
    """
    hint = next((hint for pattern, hint in _FAULTS.items() if re.search(pattern, said)), None)
    if hint is None:
        return None
    if re.search("Unescaped quote|following quoted value", said):
        field = _FIELD.search(said)
        return Problem(file, _STRAY_QUOTE, field[1][:_SHOWN] if field else None, hint)
    cause = _ITS_FILE.sub("", said.partition(": ")[2] or said)
    return Problem(file, f"it cannot be read: {cause[:_SHOWN].rstrip('.')}", hint=hint)


def unreadable_footers(
    entry: OffsetEntry, found: Sequence[tuple[str, Exception, bool]]
) -> ScopeProviderError:
    """Give the error for footers that could not be read; retried unless all are surely the files' fault.

    :param found: Path and cause of each, and whether the bytes of the file could be read.
    """
    problems = []
    for path, cause, opens in found:
        said = short_cause(cause)
        problem = unread(path, said)
        if problem is None and opens:
            problem = Problem(path, f"it cannot be read: {said.rstrip('.')}", hint=_DAMAGED)
        if problem is None:
            return SourceUnreadableError(
                f"The columns of {path} of batch {entry.seq} could not be read: {said}.",
                kept=KEPT,
                do=f"the next try reads it again. If the file is there, {NOT_SEEN}",
            )
        problems.append(problem)
    return bad_files(entry, problems)


def path_of(entry: OffsetEntry, file: str) -> str:
    """Give the file of a batch that Spark spells in its own way."""
    known = _by_key(entry.files)
    return known.get(same_key(unquote(file))) or known.get(same_key(file)) or file


@functools.lru_cache(maxsize=2)
def _by_key(files: tuple[FileEntry, ...]) -> dict[str, str]:
    return {same_key(file.path): file.path for file in files}


def place_of(entry: OffsetEntry, file: str | None) -> str:
    """Name the file of a record, and its batch."""
    return f"Batch {entry.seq}" if file is None else f"The file {path_of(entry, file)} of batch {entry.seq}"
