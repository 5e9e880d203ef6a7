"""The quarantine, a table beside the target: it takes what cannot be loaded, so that the rest can be."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import (
    BadFileError,
    BatchNotInTableError,
    InputError,
    SourceMismatchError,
)
from airflow_provider_scope.expectations import LEVEL_HINT
from airflow_provider_scope.protocol.bad_records import FILES, RECORDS, ROWS, Quarantined
from airflow_provider_scope.sources.files.spec import RESCUED_PATH
from airflow_provider_scope.spark import storage, user_sql
from airflow_provider_scope.spark.commit import OF_OWN_TABLES, ConcurrentCommitError, DeltaLog, conflicts
from airflow_provider_scope.spark.files import reading, text_files
from airflow_provider_scope.spark.files.formats import (
    NUMBER,
    RAW,
    RESCUED,
    RULE,
    VALUE,
    BadRecord,
    Check,
    broken_rule,
)
from airflow_provider_scope.spark.files.listing import (
    FILE,
    KEPT,
    SHOWN,
    NoColumnsError,
    file_paths,
    in_order,
    place_of,
    union,
)
from airflow_provider_scope.spark.files.reading import naming_faults
from airflow_provider_scope.spark.held import read_once
from airflow_provider_scope.spark.session import with_settings
from airflow_provider_scope.spark.shaping import is_computed
from airflow_provider_scope.spark.structs import literal_rows, of_table, to_struct, without_lengths
from airflow_provider_scope.sql import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import ExitStack

    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.spark.files.formats import Source
    from airflow_provider_scope.spark.plan import Plan


COLUMNS = {
    "pipeline": "string",
    "batch": "bigint",
    "file": "string",
    "record": "bigint",
    "rule": "string",
    "value": "string",
    "raw": "string",
    "quarantined_at": "timestamp",
}
"""Of the quarantine, with their types: one row for a record, for a row of the SELECT, or for a file."""
_MOST_KEYS = 20
"""Keys that were rescued of which the commit of a batch says how often."""
OTHER_KEYS = "other keys"
_COMPACTS = "spark.databricks.delta.autoCompact.enabled"
_TRIES_OF_A_BATCH = 1_000_000
"""``txnVersion`` is the batch's number times this, plus the number of the try."""


class Quarantine:
    """The rows that the batches of one pipeline have in the quarantine.

    They are written before the batch's commit to the target. If that commit never comes, because the
    application dies, the next try of the batch replaces them: they are those of the try whose rows are in
    the target.
    """

    def __init__(self, spark: SparkSession, pipeline: str, table: str) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.table = table
        self.log = DeltaLog(spark, table)
        self._app_id = f"{pipeline}.quarantine"
        self._is_clean = False
        """Whether it is known that no batch that is still to run has rows in the quarantine."""

    def clear(self, entry: OffsetEntry) -> None:
        """Remove the rows of an earlier try of a batch, which never got to the target.

        :raises ConcurrentCommitError: Another application runs the batch, or a later one.
        """
        if self._is_clean:
            return
        newest = self._newest()
        if newest is not None and newest[0] == entry.seq:
            self.put(entry, self.spark.createDataFrame([], to_struct(COLUMNS)), 0)
        self._is_clean = True

    def put(self, entry: OffsetEntry, rows: DataFrame, count: int) -> int:
        """Commit the rows of a batch, in place of those of an earlier try of it.

        :param rows: With the columns in ``COLUMNS``.
        :param count: How many they are.
        :return: The number of this try.
        :raises ConcurrentCommitError: Another application runs the batch, or a later one.
        :raises BatchNotInTableError: Other rows were committed than were counted.
        """
        self._is_clean = False
        with conflicts():
            self._check_columns()
            seq, attempt = self._newest() or (-1, 0)
            if seq > entry.seq:
                raise ConcurrentCommitError(f"batch {seq} is in the quarantine already")
            number = attempt + 1 if seq == entry.seq else 0
            writer = (
                rows.select(*COLUMNS)
                .write.format("delta")
                .options(**OF_OWN_TABLES)
                .option("txnAppId", self._app_id)
                .option("txnVersion", str(entry.seq * _TRIES_OF_A_BATCH + number))
            )
            if number:
                is_of_batch = f"pipeline = {literal(self.pipeline)} AND batch = {entry.seq}"
                writer = writer.mode("overwrite").option("partitionOverwriteMode", "static")
                writer = writer.option("replaceWhere", is_of_batch)
            else:
                writer = writer.mode("append")
            # Else the version would be that of the compaction, which says nothing of the rows.
            with with_settings(self.spark, {_COMPACTS: "false"}):
                version = self.log.save(writer)
        if version is None:
            raise ConcurrentCommitError("another application put the batch into the quarantine")
        written = self.log.written_rows(version)
        if written is not None and written != count:
            raise BatchNotInTableError(
                f"The quarantine {self.table} received {written:,} rows of batch {entry.seq}, but "
                f"{count:,} were counted.",
                kept="the table; no row of this batch was written there, and the batch stays logged",
                do="the next try runs it again, and replaces these rows; if it happens again, report it",
            )
        return number

    def holds(self, entry: OffsetEntry, number: int) -> bool:
        """Check whether the rows that the quarantine has of a batch are those of this try, by its number."""
        newest = self._newest()
        return newest is not None and (newest[0] > entry.seq or newest == (entry.seq, number))

    def _newest(self) -> tuple[int, int] | None:
        """Find the newest batch of the pipeline in the quarantine, and the number of its newest try."""
        newest = self.log.newest_transaction(self._app_id)
        return None if newest is None else divmod(newest, _TRIES_OF_A_BATCH)

    def _check_columns(self) -> None:
        metadata = self.log.metadata()
        if metadata is None:
            return
        names = of_table(metadata).names
        if [*names] != [*COLUMNS]:
            raise InputError(
                f"The table {self.table} is not a quarantine table: it has the columns {', '.join(names)}.",
                kept="both tables; no row of this batch was written, and the batch stays logged",
                do="name another folder: table=TableSpec(quarantine=…)",
            )


_T = TypeVar("_T")
_Counts: TypeAlias = "Counter[tuple[str, str | None]]"
"""File and rule -> how many of its rows break it; the rule is None for good rows."""
_Faults: TypeAlias = dict[str, tuple[str, str | None]]
"""As ``BadFileError.files``."""
NOTHING_GOOD = "none of its records can be loaded"
"""The rule of a file that was put aside record by record, up to the last."""
_LISTED = "its records are in the quarantine one by one, each with its rule"


@dataclass(frozen=True, slots=True)
class SortedBatch:
    """The rows of a batch, the good ones and the bad ones."""

    good: DataFrame | None
    """The rows to load; None if no file could be read and their columns are not known."""
    bad: DataFrame
    """Rows of the quarantine."""
    quarantined: dict[str, Quarantined]
    """``records``, ``rows`` or ``files`` -> those that are bad."""
    warned: dict[str, dict[str, int]]
    """What the commit says of the rules that only warn."""
    rescued: dict[str, int]
    """Keys and columns -> how many records had a value that was rescued, the most frequent ones."""
    error: BadFileError | None
    """About the files that cannot be read."""


def sorted_out(block: ExitStack, spark: SparkSession, plan: Plan, entry: OffsetEntry) -> SortedBatch:
    """Sort the records and files of a batch.

    Each file is read once, and what was read is kept on the disks of Spark's executors until the block ends:
    good and bad are parts of the very same rows.

    :raises SourceMismatchError: Good and bad records together are not those that were read.
    """
    source = replace(reading.source_for(spark, plan, entry), quarantines=True)
    if plan.rescued:
        source = replace(source, rescued_from=source.columns)
    judge = partial(_judge_once, spark, block)
    judged, remaining, bad_files, error = read_good_files(spark, entry, source, judge)
    records = rows = Quarantined(0, {})
    good, bad, warned = None, [], dict[str, dict[str, int]]()
    rescued = dict[str, int]()
    if judged is not None:
        data, counts = judged
        records = _quarantined(counts)
        spelled = file_paths(remaining, [file for file, rule in counts if rule is not None])
        lost = spelled.keys() - {file for file, rule in counts if rule is None}
        bad_files.update({spelled[file]: (NOTHING_GOOD, _LISTED) for file in sorted(lost)})
        pairs = ", ".join(f"{literal(file)}, {literal(path)}" for file, path in spelled.items())
        file = f"element_at(map({pairs}), {FILE})" if pairs else FILE
        is_good = F.col(RULE).isNull()
        bad.append(_rows(data.where(~is_good), entry, plan, file=file, record=NUMBER, value=VALUE))
        good = data.where(is_good).drop(RULE, VALUE, RAW, NUMBER)
        for name in plan.rescued:
            rescued = _most_rescued(good)
            paths = file_paths(remaining, [file for file, _ in counts]) if rescued else {}
            good = good.withColumn(name, F.expr(_with_path(paths))).drop(RESCUED)
    elif source.columns:
        columns = without_lengths(source.columns)
        good = spark.createDataFrame([], columns.add(FILE, "string"))
    if good is not None:
        good = reading.over(spark, plan, remaining, good)
        if plan.expect or rescued:
            named = partial(reading.first_in_its_file, spark, plan, remaining, source=source)
            good, broken, rows, warned = _sort_by_expectations(plan, entry, good, block, named)
            bad.append(broken)
    files = [{"file": file, "rule": rule, "value": details} for file, (rule, details) in bad_files.items()]
    frame = literal_rows(spark, files, "file string, rule string, value string")
    bad.append(_rows(frame, entry, plan, file="file", rule="rule", value="value", raw="NULL"))
    whole = Quarantined(len(entry.files), dict(Counter(rule for rule, _ in bad_files.values())))
    units = {RECORDS: records, ROWS: rows, FILES: whole}
    quarantined = {unit: counted for unit, counted in units.items() if counted.rules}
    return SortedBatch(good, union(bad), quarantined, warned, rescued, error)


def _most_rescued(rows: DataFrame) -> dict[str, int]:
    """Count the keys that were rescued, the most frequent ones each, and the others together."""
    keys = F.explode(F.map_keys(F.from_json(RESCUED, "map<string,string>"))).alias("key")
    groups = rows.where(f"{RESCUED} IS NOT NULL").select(keys).groupBy("key").count()
    first = groups.orderBy(F.desc("count"), "key").limit(_MOST_KEYS).collect()
    counts = {row["key"]: row["count"] for row in first}
    if len(counts) == _MOST_KEYS:
        total = groups.agg(F.sum("count")).first()
        count = total[0] - sum(counts.values()) if total else 0
        counts |= {OTHER_KEYS: count} if count else {}
    return counts


def _beginning(path: str) -> str:
    return json.dumps({RESCUED_PATH: path}, ensure_ascii=False, separators=(",", ":"))[:-1]


def _with_path(paths: Mapping[str, str]) -> str:
    """Write SQL of what was rescued of a record, with the path of its file.

    :param paths: File, as the rows have it -> its path; empty if nothing was rescued.
    """
    if not paths:
        return "CAST(NULL AS string)"
    pairs = ", ".join(f"{literal(file)}, {literal(_beginning(path))}" for file, path in paths.items())
    return f"concat(element_at(map({pairs}), {FILE}), ',', substr({RESCUED}, 2))"


def _judge_once(
    spark: SparkSession, block: ExitStack, entry: OffsetEntry, source: Source
) -> tuple[DataFrame, _Counts]:
    pieces = reading.records(spark, entry, source)
    with in_order(spark):
        held, counts, _ = _read_and_count(entry, union([piece.judged() for piece in pieces]), block)
    suspects = [file for file, rule in counts if rule == text_files.UNDECODED]
    if not suspects:
        return held, counts
    text_files.check_bytes(spark, entry, source, suspects)
    return _judge_once(spark, block, entry, replace(source, has_checked_bytes=True))


def _read_and_count(
    entry: OffsetEntry, rows: DataFrame, block: ExitStack, aggregates: Sequence[Column] = ()
) -> tuple[DataFrame, _Counts, dict[str, Any]]:
    """Read rows once, hold them for the block, and count those that break each rule.

    :param rows: With the columns ``FILE`` and ``RULE``; what is good and what is bad is cut out of them.
    :return: The rows, their numbers by file and rule, and the values of ``rows`` and other aggregates.
    :raises SourceMismatchError: Good and bad ones together are not all of them.
    """
    every = [F.count(F.lit(1)).alias("rows"), *aggregates]
    held, values = read_once(block, rows, every, StorageLevel.DISK_ONLY)
    read = int(values["rows"])
    groups = held.groupBy(FILE, RULE).count().collect()
    counts = Counter({(group[FILE], group[RULE]): group["count"] for group in groups})
    if counts.total() != read:
        raise SourceMismatchError(
            f"{read:,} rows of batch {entry.seq} were read, but {counts.total():,} good and bad ones were "
            "counted.",
            kept=KEPT,
            do="clear the task, which runs it again; if it happens again, report it",
        )
    return held, counts, values


def _quarantined(counts: _Counts) -> Quarantined:
    rules: Counter[str] = Counter()
    for (_, rule), count in counts.items():
        if rule is not None:
            rules[rule] += count
    return Quarantined(counts.total(), dict(rules))


class GoodFiles(NamedTuple, Generic[_T]):
    """The files of a batch that can be read, and what came of reading them."""

    result: _T | None
    """None if no file can be read."""
    entry: OffsetEntry
    """The batch, with these files alone."""
    bad_files: _Faults
    error: BadFileError | None
    """About the first of the others."""


def read_good_files(
    spark: SparkSession,
    entry: OffsetEntry,
    source: Source,
    read: Callable[[OffsetEntry, Source], _T],
    prepare: Callable[[OffsetEntry, Source], Source] = lambda _, source: source,
) -> GoodFiles[_T]:
    """Read the files of a batch together, without those that cannot be read.

    :param read: Reads files, and raises ``BadFileError`` if one of them cannot be read.
    :param prepare: Completes the source by a look at the files.
    """
    bad_files: _Faults = {}
    error = None
    while entry.files:
        prepared = source
        try:
            with naming_faults(spark, entry):
                prepared = prepare(entry, source)
                return GoodFiles(read(entry, prepared), entry, bad_files, error)
        except BadFileError as err:
            error = error or err
            bad_files.update(_faults(spark, entry, prepared, err))
            entry = entry.with_files({*entry.paths} - bad_files.keys())
        except NoColumnsError:
            break
    return GoodFiles(None, entry, bad_files, error)


def _faults(spark: SparkSession, entry: OffsetEntry, source: Source, err: BadFileError) -> _Faults:
    """Find all files that cannot be read.

    :param err: If Spark failed, it names one of them: then each file is read alone.
    :raises PySparkException: None fails alone: what failed may pass.
    """

    def fault(path: str) -> _Faults:
        alone = entry.with_files([path])
        try:
            with naming_faults(spark, alone):
                rows = union([piece.judged() for piece in reading.records(spark, alone, source)])
                rows.write.format("noop").mode("overwrite").save()
        except BadFileError as bad:
            return dict(bad.files)
        except NoColumnsError:
            pass
        return {}

    bad_files = dict(err.files)
    if err.__cause__ is not None:
        alone = storage.at_once(fault, entry.paths, storage.READS_AT_ONCE)
        bad_files = {path: why for file_faults in alone for path, why in file_faults.items()}
    if not bad_files.keys() & {*entry.paths}:
        raise err.__cause__ or err from None
    return bad_files


def _rows(
    frame: DataFrame,
    entry: OffsetEntry,
    plan: Plan,
    *,
    file: str,
    record: str = "NULL",
    rule: str = RULE,
    value: str = "NULL",
    raw: str = RAW,
) -> DataFrame:
    """Make rows of the quarantine; the arguments are SQL over the frame's columns."""
    values = {
        "pipeline": literal(plan.pipeline),
        "batch": str(entry.seq),
        "file": file,
        "record": record,
        "rule": rule,
        "value": value,
        "raw": raw,
        "quarantined_at": "current_timestamp()",
    }
    return frame.select(*[F.expr(values[name]).cast(kind).alias(name) for name, kind in COLUMNS.items()])


def _sort_by_expectations(
    plan: Plan,
    entry: OffsetEntry,
    rows: DataFrame,
    block: ExitStack,
    named: Callable[[BadRecord], BadRecord],
) -> tuple[DataFrame, DataFrame, Quarantined, dict[str, dict[str, int]]]:
    """Sort the rows of the SELECT by the rules of ``TableSpec.expect``.

    :param named: Finds the file and the number of a record whose row fails the batch.
    :return: The good rows, rows of the quarantine, how many these are, and what the commit says of warnings.
    :raises BadRecordError: A row fails the batch, or too many break a rule.
    """
    names = [quoted(name) for name in rows.columns]
    # Without a quarantine, a text alone is a rule that fails the batch: by its row, which is bad then.
    sorting = plan.rules("quarantine") | {name: rule for name, rule in plan.expect.items() if rule.is_plain}
    checks = [Check(name, rule.sql, "NULL") for name, rule in sorting.items()]
    required = _required(rows, plan) if plan.rescued else {}
    checks += [Check(name, predicate, "NULL") for name, predicate in required.items()]
    judgement = {FILE: user_sql.file_of(rows), RULE: broken_rule(checks), RAW: user_sql.ROW}
    judged = rows.select("*", *[F.expr(sql).alias(name) for name, sql in judgement.items()])
    # What a text alone says is counted by its place in the quarantine.
    marks = user_sql.Marks({name: rule for name, rule in plan.expect.items() if not rule.is_plain})
    held, sorted_rows, values = _read_and_count(entry, marks.on(judged), block, marks.aggregates)
    counts = marks.counts(values)
    for name in plan.rules("fail"):
        if name not in sorting and counts[name].count:
            row = held.where(F.col(marks.columns[name])).head(1)[0]
            rule = user_sql.words(name, plan.expect[name])
            record = named(BadRecord(row[FILE], rule, None, row[RAW][:SHOWN], LEVEL_HINT))
            raise record.error(place_of(entry, record.file))
    marks.check_shares(held, counts, entry.seq, row=RAW)
    is_good = F.col(RULE).isNull()
    moved = _rows(held.where(~is_good), entry, plan, file=FILE)
    return held.where(is_good).select(*names), moved, _quarantined(sorted_rows), marks.warned(counts)


def _required(rows: DataFrame, plan: Plan) -> dict[str, str]:
    """Write rules for the columns that are never NULL in the table: where a value was rescued, they are."""
    metadata = DeltaLog(rows.sparkSession, plan.table).metadata()
    columns = of_table(metadata) if metadata else ()
    names = {name.lower() for name in rows.columns}
    return {
        f"{field.name} is NULL, and is NOT NULL in the table": f"{quoted(field.name)} IS NOT NULL"
        for field in columns
        if not field.nullable and not is_computed(field) and field.name.lower() in names
    }
