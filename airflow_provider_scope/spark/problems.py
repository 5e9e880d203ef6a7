"""The errors for files that are not what the source says."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_scope.exceptions import BadFileError, ScopeProviderError, SourceUnreadableError
from airflow_provider_scope.spark import text_form
from airflow_provider_scope.spark.causes import short_cause
from airflow_provider_scope.spark.listing import NAMED, same_key
from airflow_provider_scope.spark.records import STRAY_QUOTE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.records import BadRecord

_KEPT = "the batches before it; this one wrote no row and stays logged"
_WAYS = (
    "correct the declaration and run again; or mend the file, and give the batch up with `airflow scope "
    "abandon`: its files are loaded by the next run as they are then"
)
SHOWN = 400
_NO_SUCH_FORM = ("is not a Parquet file", "can not read class", "Malformed ORC file", "Protocol message")
"""What the readers say of a file that is of another format, or was cut."""


def bad_files(
    entry: OffsetEntry, problems: Sequence[tuple[str, str, str | None]], hints: Mapping[str, str]
) -> BadFileError:
    """Give the error for files with problems.

    :param problems: File as Spark spells it or as its URI, what it is, and a text of the file or None.
    :param hints: Beginning of a problem -> what may help.
    """
    named = [
        f"{path_of(entry, file)}: {problem}" + (f" ({text!r})" if text else "")
        for file, problem, text in problems[:NAMED]
    ]
    told = "; ".join(named)
    more = f"; and {len(problems) - NAMED} more files" if len(problems) > NAMED else ""
    found = (hint for start, hint in hints.items() for _, problem, _ in problems if start in problem)
    hint = next(found, "")
    return BadFileError(
        f"{len(problems)} of the {len(entry.files)} files of batch {entry.seq} cannot be loaded: "
        f"{told}{more}.",
        kept=_KEPT,
        do=f"{hint}. Or {_WAYS}" if hint else _WAYS,
    )


def unreadable(entry: OffsetEntry, path: str, cause: Exception) -> ScopeProviderError:
    """Give the error for a footer that could not be read; not retried if it is surely the file's fault."""
    said = short_cause(cause)
    if any(text in said for text in _NO_SUCH_FORM):
        return BadFileError(
            f"The file {path_of(entry, path)} of batch {entry.seq} cannot be read: {said}.",
            kept=_KEPT,
            do=_WAYS,
        )
    return SourceUnreadableError(
        f"The columns of {path_of(entry, path)} of batch {entry.seq} could not be read: {said}.",
        kept=_KEPT,
        do="the next try reads it again",
    )


_QUOTES = (
    "if a quoted field holds line breaks, set multiLine=true; if quotes have no meaning in the file, set "
    "quote=''"
)
_FAULTS = {
    "CSV header": "the header has to be the declared columns, in their order: correct `columns`; or set "
    "header=false if the files have none",
    "TextParsingException": "a quote in a quoted field is doubled, unless `escape` says otherwise; "
    "unescapedQuoteHandling='STOP_AT_DELIMITER' takes such fields as they are",
    "ZipException": "its name says that it is compressed, and it is not, or in another way",
    "not a gzip file": "its name says that it is compressed, and it is not",
    "Unexpected end of input stream": "it was cut, or is still being written",
    "Unexpected end of ZLIB": "it was cut, or is still being written",
    "bad block header": "it is not bzip2, or damaged",
    "Stream is not BZip2": "its name says that it is bzip2, and it is not",
    "Can not read value": "it is damaged",
    "could not read page": "it is damaged",
}
"""What is surely a file's own fault, by what its reader says -> what may help."""


def unread(entry: OffsetEntry, file: str, said: str) -> BadFileError | None:
    """Give the error for a file that Spark failed to read, if that is the file's fault.

    :param said: The innermost cause, with its class.
    :return: None if it may be a passing failure of the store.
    """
    hint = next((hint for start, hint in _FAULTS.items() if start in said), None)
    if hint is None:
        return None
    cause = said.partition(": ")[2] or said
    return bad_files(entry, [(file, cause[:SHOWN], None)], {"": hint})


def path_of(entry: OffsetEntry, file: str) -> str:
    """Give the file of a batch that Spark spells in its own way."""
    key = same_key(unquote(file))
    for known in entry.files:
        if same_key(known.path) in (key, same_key(file)):
            return known.path
    return file


def place_of(entry: OffsetEntry, file: str | None) -> str:
    """Name the file of a record, and its batch."""
    return f"Batch {entry.seq}" if file is None else f"The file {path_of(entry, file)} of batch {entry.seq}"


def check_suspicion(spark: SparkSession, plan: Plan, entry: OffsetEntry, found: BadRecord) -> None:
    """Look at the bytes of the files: they may hold a replacement character or a quote as such.

    :raises BadFileError: A file has bytes that its encoding does not know, or a quote that is not closed.
    """
    options = {name.lower(): value for name, value in plan.source_options.items()}
    if found.rule == STRAY_QUOTE:
        odd = text_form.odd_quotes(spark, [file.path for file in entry.files], options.get("quote", '"'))
        if odd:
            told = [(file, "it has a line with an odd number of quotes", line) for file, line in odd]
            raise bad_files(entry, told, {"": _QUOTES})
        return
    encoding = options.get("encoding", options.get("charset", "UTF-8"))
    hints = {"": "name the encoding of the file: options={'encoding': 'ISO-8859-1'}"}
    if encoding.upper().replace("_", "-") not in ("UTF-8", "UTF8"):
        raise bad_files(
            entry, [(found.file or "", f"it has bytes that are not {encoding}", found.record)], hints
        )
    wrong = text_form.not_utf8(spark, [file.path for file in entry.files])
    if wrong:
        told = [(file, "it has bytes that are not UTF-8", line) for file, line in wrong]
        raise bad_files(entry, told, hints)


def hint_for(plan: Plan, found: BadRecord) -> str:
    """Give what may help with a record, by its format and its rule."""
    if plan.source_format == "csv" and found.rule.startswith("it has not"):
        return (
            "Fields are separated by `sep`; a quote in a quoted field is doubled, unless `escape` says "
            "otherwise; fields that hold line breaks need multiLine=true"
        )
    if " is not date" in found.rule or " is not timestamp" in found.rule:
        return (
            "`dateFormat` and `timestampFormat` tell other spellings; or declare it as string, and CAST in "
            "the SELECT"
        )
    if " is not " in found.rule:
        return "Or declare it as string, and CAST in the SELECT"
    return ""
