"""From the files of a batch to the rows of the user's SELECT, and why they cannot be read."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope import sql as sql_text
from airflow_provider_scope.exceptions import InputError, ScopeProviderError
from airflow_provider_scope.failures import kind_of
from airflow_provider_scope.sources.files.spec import VIRTUAL_COLUMNS
from airflow_provider_scope.spark import storage, user_sql
from airflow_provider_scope.spark.commit import DeltaLog
from airflow_provider_scope.spark.files import columnar, csv_files, json_files, partitions, text_files
from airflow_provider_scope.spark.files.formats import (
    NOT_PARSED,
    NUMBER,
    RAW,
    RULE,
    VALUE,
    bad_record,
    by_options,
    source_of,
)
from airflow_provider_scope.spark.files.listing import (
    AFTER_GZIP,
    AFTER_GZIP_HINT,
    FILE,
    GZIP_ENDS,
    KEPT,
    OTHER_HEADER_HINT,
    SHOWN,
    NoColumnsError,
    Problem,
    bad_files,
    in_order,
    load,
    path_of,
    place_of,
    read_problem,
    same_key,
    union,
)
from airflow_provider_scope.spark.files.table_types import table_types
from airflow_provider_scope.spark.held import read_once
from airflow_provider_scope.spark.session import (
    NANOSECONDS,
    SPARK_ERRORS,
    short_cause,
    unread_file,
    whole_text,
)
from airflow_provider_scope.spark.structs import literal_rows, to_struct, without_lengths
from airflow_provider_scope.sql import quoted
from airflow_provider_scope.values import TEXT_FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.formats import BadRecord, Records, Source
    from airflow_provider_scope.spark.plan import Plan


_FORMATS: dict[str, Callable[[SparkSession, OffsetEntry, Source], list[Records]]] = {
    "csv": csv_files.records,
    "json": json_files.records,
    "text": text_files.records,
    "parquet": columnar.records,
    "orc": columnar.records,
    "avro": columnar.records,
}


def read(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> DataFrame:
    """Read the typed rows of the files of a batch, and ``FILE``, as a lazy DataFrame.

    Reading it fails at the first record that is not what was declared.

    :raises BadFileError: A file has other columns than declared, or is not of the declared form.
    """
    source = source_for(spark, partitions.inferred(plan, entry), entry)
    return _strict(spark, entry, replace(source, fails_fast=True))


def _good(spark: SparkSession, entry: OffsetEntry, source: Source) -> DataFrame:
    """Read the rows of the records that can be loaded, with ``NUMBER``."""
    judged = union([piece.judged() for piece in records(spark, entry, source)])
    return judged.where(F.col(RULE).isNull()).drop(RULE, VALUE, RAW)


def _strict(spark: SparkSession, entry: OffsetEntry, source: Source) -> DataFrame:
    return union([piece.strict() for piece in records(spark, entry, source)])


def source_for(spark: SparkSession, plan: Plan, entry: OffsetEntry) -> Source:
    """Say what the files of a batch are read as: columns that nobody declared have the table's types."""
    source = source_of(plan)
    is_untyped = source.format in TEXT_FORMATS and source.format != "json" and not source.infers_columns
    if source.columns is not None or is_untyped or entry.overwrites_table:
        return source
    metadata = DeltaLog(spark, plan.table).metadata()
    if metadata is None:
        return source
    words = sql_text.words(plan.sql)
    names = {name: kind for name, kind in VIRTUAL_COLUMNS.items() if name in words}
    virtual = to_struct({**plan.partition_columns, **plan.rescued, **names})

    def over_none(columns: T.StructType) -> DataFrame:
        rows = spark.createDataFrame([], without_lengths(T.StructType([*columns, *virtual])))
        return user_sql.selected(spark, plan, rows, entry.seq)

    return replace(source, table=table_types(plan, metadata, over_none))


def records(spark: SparkSession, entry: OffsetEntry, source: Source) -> list[Records]:
    """Read the records of the files of a batch, one value for all files that are read alike.

    :raises BadFileError: A file has other columns than declared, or is not of the declared form.
    :raises NoColumnsError: None has any, so there are no records, and nothing for a SELECT.
    """
    if source.format in TEXT_FORMATS:
        storage.check_bzip2(spark, entry)
    if source.partitions:
        partitions.check(spark, entry, source.partitions, allows_missing=source.allows_missing)
    alike = by_options(entry, source)
    pieces = [piece for part, options in alike for piece in _FORMATS[source.format](spark, part, options)]
    if not pieces:
        raise NoColumnsError
    if source.rescued_from is None:
        return pieces
    return [replace(piece, rescued=piece.rescued or "CAST(NULL AS string)") for piece in pieces]


def over(spark: SparkSession, plan: Plan, entry: OffsetEntry, data: DataFrame) -> DataFrame:
    """Make the user's SELECT over rows of the files of a batch.

    :param data: The columns of the source, and ``FILE``; and what was rescued, if that was looked for.
    :raises InputError: The SELECT leaves out what was rescued.
    """
    for name in plan.rescued:
        if name not in data.columns:
            data = data.withColumn(name, F.lit(None).cast("string"))
    virtual_names = [name for name in VIRTUAL_COLUMNS if name in sql_text.words(plan.sql)]
    of_paths = to_struct(plan.partition_columns)
    partitions.check_names(of_paths, data.columns)
    if virtual_names or of_paths.fields:
        data = _with_virtual_columns(spark, plan, entry, data, virtual_names)
    else:
        data = data.drop(FILE)
    result = user_sql.selected(spark, plan, data, entry.seq)
    for name in plan.rescued:
        if name.lower() not in [column.lower() for column in result.columns]:
            raise InputError(
                f"The SELECT leaves out {name}, the column with what is rescued of a record.",
                kept=KEPT,
                do=f"name {name} in the SELECT; or leave out rescued_data_column, and set "
                'extra_columns="ignore" if keys that are not declared are not wanted',
            )
    return _once(result, virtual_names)


def _with_virtual_columns(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, data: DataFrame, virtual_names: list[str]
) -> DataFrame:
    """Add the columns of the paths, and the virtual columns that the SQL names, with the values of the log.

    Spark's own ``_metadata`` is percent-encoded and shows the state at planning.
    """
    of_paths = to_struct(plan.partition_columns)
    texts_by_file = partitions.rows_of(entry, of_paths, allows_missing=plan.files.missing_columns == "null")
    rows = [
        {
            "_scope_key": same_key(file.path),
            "source_file_uri": file.path,
            "source_file_length": file.size_bytes,
            "created": file.created_ms,
            "modified": file.modified_ms,
            **texts,
        }
        for file, texts in zip(entry.files, texts_by_file, strict=True)
    ]
    sizes_and_times = "source_file_length bigint, created bigint, modified bigint"
    kinds = ["_scope_key string, source_file_uri string", sizes_and_times, *partitions.text_columns(of_paths)]
    # Only columns that the files cannot have: theirs may be called `created`, too.
    files = literal_rows(spark, rows, ", ".join(kinds)).selectExpr(
        "_scope_key",
        "source_file_uri",
        "source_file_length",
        *partitions.values(of_paths),
        "timestamp_millis(created) AS source_file_created",
        "timestamp_millis(modified) AS source_file_modified",
        "true AS _scope_found",
    )
    key = F.regexp_replace(F.col(FILE), "^file:/+", "file:///")
    names = [name for name in data.columns if name != FILE]
    keyed = data.select("*", key.alias("_scope_key"))
    joined = keyed.join(F.broadcast(files), "_scope_key", "left")
    message = F.concat(F.lit("rows of a file that is not in the batch: "), F.col("_scope_key"))
    virtual = [
        F.when(F.col("_scope_found"), F.col(quoted(name))).otherwise(F.raise_error(message)).alias(name)
        for name in [*of_paths.names, *virtual_names]
    ]
    return joined.select(*[F.col(quoted(name)) for name in names], *virtual)


def _once(result: DataFrame, virtual_names: list[str]) -> DataFrame:
    """Drop the second copy of a virtual column: ``SELECT *, source_file_uri`` names it twice."""
    names = result.schema.names
    kept = [n for n, name in enumerate(names) if name not in virtual_names or names.index(name) == n]
    if len(kept) == len(names):
        return result
    numbered = result.toDF(*[f"c{n}" for n in range(len(names))])
    return numbered.select(*[F.col(f"c{n}").alias(names[n]) for n in kept])


_NANOSECONDS = "it has a time before 1970 with a fraction of a second as ORC does not write such"
_NANOSECONDS_HINT = (
    "Arrow's writer of ORC (pyarrow) makes such files, which Arrow alone reads: write the times as whole "
    "seconds, or the file as parquet"
)

_T = TypeVar("_T")


def read_by(
    spark: SparkSession,
    plan: Plan,
    entry: OffsetEntry,
    rows: Callable[[], DataFrame],
    act: Callable[[DataFrame], _T],
) -> _T:
    """Do what reads the rows of the user's SELECT, and tell why it failed.

    A row that breaks a rule of ``TableSpec.expect`` fails, too.

    :param rows: Gives the result of ``read``.
    :raises BadRecordError: A record does not have the declared columns, or a value of another type.
    :raises BadFileError: A file is not what the source says.
    """
    source = None
    while True:
        try:
            data = rows() if source is None else _strict(spark, entry, source)
            return act(user_sql.checked(plan, over(spark, plan, entry, data)))
        except SPARK_ERRORS as err:
            record = bad_record(whole_text(err))
            if record is None and source is None and NOT_PARSED in whole_text(err):
                source = source_for(spark, plan, entry)  # which tells the record
                continue
            if record is None:
                with naming_faults(spark, entry):
                    if kind_of(whole_text(err)) == "sql":
                        _raise_with_place(spark, plan, entry, source)
                    raise
            if record.rule != text_files.UNDECODED:
                if not plan.sorts_records:  # which reads it again itself
                    record = first_in_its_file(spark, plan, entry, record, source)
                raise record.error(place_of(entry, record.file)) from err
            with naming_faults(spark, entry):
                text_files.check_bytes(spark, entry, source_of(plan), [record.file] if record.file else [])
        # What was suspected is in the files as such.
        source = replace(source_for(spark, plan, entry), has_checked_bytes=True)


def first_in_its_file(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, record: BadRecord, source: Source | None
) -> BadRecord:
    """Find the first bad record of a file with its number, in place of one that Spark came upon.

    For a row of the SELECT, it is the first record that makes such a row.

    :return: The same, if the file cannot be read again or no record alone is bad.
    """
    if record.is_of_select:

        def is_same(text: str) -> bool:
            bad = bad_record(text)
            return bad is not None and bad.rule == record.rule

        by_words = {user_sql.words(name, rule): {name: rule} for name, rule in plan.expect.items()}
        plan = plan.with_spec(expect=by_words[record.rule])  # no other rule is to fail before it
        failing = _first_failing(spark, plan, entry, source, is_same)
        again = bad_record(whole_text(failing.error)) if failing else None
        return replace(again, file=failing.file, number=failing.number) if failing and again else record
    alone = entry.with_files([path_of(entry, record.file or "")])
    if not alone.files:
        return record
    try:
        with in_order(spark):
            pieces = records(spark, alone, source or source_for(spark, plan, entry))
            rows = union([piece.judged() for piece in pieces])
            (first,) = rows.where(F.col(RULE) == record.rule).limit(1).collect()
    except (*SPARK_ERRORS, ScopeProviderError, ValueError):
        return record
    value, raw = (text and text[:SHOWN] for text in (first[VALUE], first[RAW]))
    return replace(record, value=value, record=raw, number=first[NUMBER])


class _Failing(NamedTuple):
    """A record on which the SELECT, or a rule for its rows, fails."""

    file: str
    number: int
    """Its place among the records of its file, from 1."""
    error: Exception


def _raise_with_place(spark: SparkSession, plan: Plan, entry: OffsetEntry, source: Source | None) -> None:
    """Fail with the first record on which the SELECT fails alone; return if there is none.

    :raises SqlError: There is such a record.
    """
    first = _first_failing(spark, plan, entry, source, lambda text: kind_of(text) == "sql")
    if first:
        place = f"record {first.number:,} of the file {first.file} of batch {entry.seq}"
        raise user_sql.failed(place, short_cause(first.error)) from first.error


def _first_failing(
    spark: SparkSession, plan: Plan, entry: OffsetEntry, source: Source | None, is_same: Callable[[str], bool]
) -> _Failing | None:
    """Find the first record on which the SELECT fails: its rows have no number any more.

    :param is_same: Tells by the text of an error of Spark whether it is the one that is looked for.
    :return: None if no record alone makes it fail, or the files cannot be read again.
    """

    def failure(part: OffsetEntry, rows: DataFrame) -> Exception | None:
        try:
            result = user_sql.checked(plan, over(spark, plan, part, rows))
            result.write.format("noop").mode("overwrite").save()
        except SPARK_ERRORS as err:
            return err if is_same(whole_text(err)) else None
        return None

    def failure_of_files(start: int, end: int) -> Exception | None:
        part = entry.with_files(entry.paths[start:end])
        try:
            rows = _good(spark, part, used).drop(NUMBER) if used.quarantines else _strict(spark, part, used)
        except NoColumnsError:
            return None
        return failure(part, rows)

    try:
        used = source or source_for(spark, plan, entry)
        file = first_failing(len(entry.paths), failure_of_files)
        if file is None:
            return None
        alone = entry.with_files([entry.paths[file[0]]])
        with ExitStack() as block, in_order(spark):
            held, values = read_once(
                block,
                _good(spark, alone, used),
                [F.count(F.lit(1)).alias("rows"), F.max(NUMBER).alias("last")],
                StorageLevel.DISK_ONLY,
            )
            first = first_failing(
                int(values["last"] or 0),
                lambda start, end: failure(
                    alone, held.where(F.col(NUMBER).between(start + 1, end)).drop(NUMBER)
                ),
            )
        return _Failing(alone.paths[0], first[0] + 1, first[1]) if first else None
    except (*SPARK_ERRORS, ScopeProviderError):
        return None


def first_failing(
    count: int, failure: Callable[[int, int], Exception | None]
) -> tuple[int, Exception] | None:
    """Find the first of some items that fails alone, by halves.

    :param failure: Gives why the items from a position to before another fail together, or None.
    :return: Its position, and why; None if none fails alone.
    """
    start, end = 0, count
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (start, middle) if failure(start, middle) else (middle, end)
    error = failure(start, end) if start < end else None
    return (start, error) if error else None


@contextmanager
def naming_faults(spark: SparkSession, entry: OffsetEntry) -> Iterator[None]:
    """Name the file that is surely at fault itself if Spark fails to read it.

    :raises BadFileError: As said; other failures of Spark stay what they are.
    """
    try:
        yield
    except SPARK_ERRORS as err:
        problems = _problems(spark, entry, err)
        if not problems:
            raise
        raise bad_files(entry, problems, may_be_more=len(problems) == 1) from err


def _problems(spark: SparkSession, entry: OffsetEntry, err: Exception) -> list[Problem]:
    """Say what is wrong with the file that Spark failed to read; nothing if it may be the store's fault."""
    if NANOSECONDS in whole_text(err):
        return [
            Problem(file.path, _NANOSECONDS, hint=_NANOSECONDS_HINT)
            for file in entry.files
            if _has_negative_nanoseconds(spark, file.path)
        ]
    failed = unread_file(err)
    problem = read_problem(*failed) if failed else None
    if problem is None:
        return []
    if problem.hint in GZIP_ENDS and storage.has_more_after_gzip(spark, path_of(entry, problem.file)):
        problem = Problem(problem.file, AFTER_GZIP, hint=AFTER_GZIP_HINT)
    if problem.hint == OTHER_HEADER_HINT:
        problem = _with_header(spark, entry, problem)
    return [problem]


def _has_negative_nanoseconds(spark: SparkSession, path: str) -> bool:
    try:
        load(spark, "orc", [path]).write.format("noop").mode("overwrite").save()
    except SPARK_ERRORS as err:
        return NANOSECONDS in whole_text(err)
    return False


def _with_header(spark: SparkSession, entry: OffsetEntry, problem: Problem) -> Problem:
    """Show the header itself: Spark says how many fields it has, and not which."""
    try:
        with in_order(spark):
            rows = load(spark, "text", [path_of(entry, problem.file)]).head(1)
    except SPARK_ERRORS:
        return problem
    first = rows[0].value if rows else ""
    # A NUL is one of UTF-16, which is no text here; an empty line is not the header.
    return replace(problem, text=first[:SHOWN], line=1) if first.strip() and "\0" not in first else problem
