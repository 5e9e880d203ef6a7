"""Do what reads the rows of a batch, and tell which record or file made it fail."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.spark import files, suspicions
from airflow_provider_scope.spark.causes import unread_file, whole_text
from airflow_provider_scope.spark.checks import SHOWN, bad_record
from airflow_provider_scope.spark.judged import NUMBER, RAW, RULE, VALUE, judged
from airflow_provider_scope.spark.listing import in_order, load
from airflow_provider_scope.spark.problems import (
    BEHIND_GZIP,
    BEHIND_GZIP_HINT,
    GZIP_ENDS,
    HEADER_HINT,
    Problem,
    bad_files,
    path_of,
    place_of,
    unread,
)
from airflow_provider_scope.spark.reading import records, select, union
from airflow_provider_scope.spark.source import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.records import OffsetEntry
    from airflow_provider_scope.spark.checks import BadRecord

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What Spark raises."""

_T = TypeVar("_T")


def read_by(
    spark: SparkSession,
    plan: Plan,
    entry: OffsetEntry,
    rows: Callable[[], DataFrame],
    act: Callable[[DataFrame], _T],
) -> _T:
    """Do what reads the rows of a batch, and tell why it failed.

    :param rows: Gives the rows of the user's SELECT.
    :raises BadRecordError: A record does not have the declared columns, or a value of another type.
    :raises BadFileError: A file is not what the source says.
    """
    trusted: frozenset[str] = frozenset()
    while True:
        try:
            return act(select(spark, plan, entry, trusted=trusted) if trusted else rows())
        except SPARK_ERRORS as err:
            found = bad_record(whole_text(err))
            if found is None:
                with naming_faults(spark, entry):
                    raise
            if found.rule not in suspicions.SUSPICIONS:
                found = _first_in_its_file(spark, plan, entry, found, trusted)
                raise found.error(place_of(entry, found.file)) from err
            seen_in = [found.file] if found.file else []
            with naming_faults(spark, entry):
                suspicions.look(spark, entry, source_of(plan), found.rule, seen_in)
        # What was suspected is in the files as such.
        trusted |= {found.rule}


def _first_in_its_file(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, found: BadRecord, trusted: frozenset[str]
) -> BadRecord:
    """Give the first bad record of a file with its number, in place of one that Spark came upon.

    :return: What was found, if the file cannot be read again or the record is none of a file.
    """
    path = path_of(entry, found.file or "")
    alone = entry.with_files(tuple(file for file in entry.files if file.path == path))
    if not alone.files:
        return found
    try:
        with in_order(spark):
            rows = union([judged(piece) for piece in records(spark, alone, source_of(plan, trusted))])
            (first,) = rows.where(F.col(RULE) == found.rule).limit(1).collect()
    except (*SPARK_ERRORS, ScopeProviderError, ValueError):
        return found
    return replace(found, value=_cut(first[VALUE]), record=_cut(first[RAW]), number=first[NUMBER])


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:SHOWN]


@contextmanager
def naming_faults(spark: SparkSession, entry: OffsetEntry) -> Iterator[None]:
    """Name the file that is surely at fault itself if Spark fails to read it.

    :raises BadFileError: As said; other failures of Spark stay what they are.
    """
    try:
        yield
    except SPARK_ERRORS as err:
        failed = unread_file(err)
        problem = unread(*failed) if failed else None
        if problem is None:
            raise
        if problem.hint in GZIP_ENDS and files.has_more_behind_gzip(spark, path_of(entry, problem.file)):
            problem = Problem(problem.file, BEHIND_GZIP, hint=BEHIND_GZIP_HINT)
        if problem.hint == HEADER_HINT:
            problem = _with_header(spark, entry, problem)
        raise bad_files(entry, [problem]) from err


def _with_header(spark: SparkSession, entry: OffsetEntry, problem: Problem) -> Problem:
    """Show the header itself: Spark says how many fields it has, and not which."""
    try:
        with in_order(spark):
            rows = load(lambda: spark.read.format("text"), [path_of(entry, problem.file)]).head(1)
    except SPARK_ERRORS:
        return problem
    first = rows[0].value if rows else ""
    # A NUL is one of UTF-16, which is no text here; an empty line is not the header.
    return replace(problem, text=first[:SHOWN], line=1) if first.strip() and "\0" not in first else problem
