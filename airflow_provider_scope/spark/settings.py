"""Settings of Spark: those that keep the rows right, and those of small batches and tables."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """One value, whatever a cluster's defaults, a connection or a user say."""

    value: str
    reason: str
    """What could happen with another value."""


_WITHOUT_BLANKS = "a key in a CHAR column that was stored without its blanks would not be found"
_SKIPPED = "a file that cannot be read would count as loaded"
EXACT = {
    "spark.sql.ansi.enabled": Setting("true", "a cast that fails would give NULL"),
    "spark.sql.session.timeZone": Setting(
        "UTC", "times without a zone would be taken as times of another zone"
    ),
    "spark.sql.timestampType": Setting("TIMESTAMP_LTZ", "a declared timestamp would be one without a zone"),
    "spark.sql.caseSensitive": Setting("false", "a column whose name differs in case would be NULL"),
    "spark.sql.files.ignoreCorruptFiles": Setting("false", _SKIPPED),
    "spark.sql.files.ignoreMissingFiles": Setting("false", _SKIPPED),
    "spark.sql.csv.parser.columnPruning.enabled": Setting(
        "false", "a broken row would pass if the SELECT leaves a column out"
    ),
    "spark.sql.csv.filterPushdown.enabled": Setting(
        "false", "a broken row would vanish if the WHERE leaves it out"
    ),
    "spark.sql.json.filterPushdown.enabled": Setting(
        "false", "a broken record would vanish if the WHERE leaves it out"
    ),
    "spark.sql.json.enableExactStringParsing": Setting(
        "true", "a JSON value that is read as text would be rewritten"
    ),
    "spark.sql.parquet.datetimeRebaseModeInRead": Setting(
        "EXCEPTION",
        "dates before 1582 and times before 1900 of another calendar would be shifted; the reader's option "
        "datetimeRebaseMode says which calendar the files have",
    ),
    "spark.sql.parquet.int96RebaseModeInRead": Setting(
        "EXCEPTION", "the same for times as INT96; the reader's option is int96RebaseMode"
    ),
    "spark.sql.avro.datetimeRebaseModeInRead": Setting("EXCEPTION", "the same for Avro files"),
    "spark.sql.parquet.outputTimestampType": Setting(
        "TIMESTAMP_MICROS",
        "a time after 2262 would be written in a form (INT96) that other readers take for another time",
    ),
    "spark.sql.parquet.datetimeRebaseModeInWrite": Setting(
        "CORRECTED", "a date before 1582 or a time before 1900 would be another one for other readers"
    ),
    "spark.sql.legacy.parquet.nanosAsLong": Setting(
        "true", "timestamps in nanoseconds, as pandas writes them, could not be read and checked"
    ),
    "spark.sql.sources.useV1SourceList": Setting(
        "avro,csv,json,kafka,orc,parquet,text", "the files that are read could not be compared with the batch"
    ),
    "spark.sql.legacy.timeParserPolicy": Setting(
        "CORRECTED", "what follows a date in a text would be left out"
    ),
    "spark.sql.variable.substitute": Setting(
        "false", "a text or a name with ${…} would become a setting, or a variable of the machine"
    ),
    "spark.sql.parser.escapedStringLiterals": Setting(
        "false", "a stored key with a quote or a backslash would not be found, and its row doubled"
    ),
    "spark.sql.readSideCharPadding": Setting("true", _WITHOUT_BLANKS),
    "spark.sql.legacy.charVarcharAsString": Setting("false", _WITHOUT_BLANKS),
    "spark.sql.mapKeyDedupPolicy": Setting("EXCEPTION", "one value of a key that occurs twice would be lost"),
    # Spark 4.2 hands parameters to the parser otherwise, and Delta 4.4's parser drops them there.
    "spark.sql.legacy.parameterSubstitution.constantsOnly": Setting("true", "sql_params would be lost"),
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": Setting(
        "true", "rows outside of the range would be added, and doubled by the next run"
    ),
}
"""What the application sets when it starts."""
OF_READING = frozenset(
    {
        "spark.sql.csv.parser.columnPruning.enabled",
        "spark.sql.csv.filterPushdown.enabled",
        "spark.sql.json.filterPushdown.enabled",
        "spark.sql.json.enableExactStringParsing",
        "spark.sql.parquet.datetimeRebaseModeInRead",
        "spark.sql.parquet.int96RebaseModeInRead",
        "spark.sql.avro.datetimeRebaseModeInRead",
        "spark.sql.legacy.parquet.nanosAsLong",
        "spark.sql.sources.useV1SourceList",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.mapKeyDedupPolicy",
    }
)
"""Those of ``EXACT`` that say what a DataFrame is which the caller has made: it is not read otherwise."""
OF_TABLES = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}
"""What the application sets then if a Delta table is its source. The format has one calendar alone; files
that an old Spark wrote by another one say so themselves. Delta refuses versions whose files VACUUM may have
deleted; if it has, these files are an error when they are read."""
EXACT_AT_START = {
    "spark.files.ignoreCorruptFiles": Setting("false", _SKIPPED),
    "spark.files.ignoreMissingFiles": Setting("false", _SKIPPED),
}
"""What Spark takes only before it starts."""


def contradiction(name: str, value: object) -> Setting | None:
    """Return the setting that a user's value contradicts; None if it contradicts none."""
    setting = EXACT.get(name) or EXACT_AT_START.get(name)
    if setting is None or str(value).strip().lower() == setting.value.lower():
        return None
    return setting


# ---- Small batches and tables: Spark needs longer to spread the work than to do it ----

SMALL_ROWS = 10_000
"""A batch of so many rows at the most is one partition: what looks at its keys need not shuffle them."""
TABLE_BYTES = 16 * 1024 * 1024
"""A MERGE rewrites this much in one task within a second or two."""

LOG_FILES = 10_000
"""Of so many files one task finds the newest actions within a second."""

OF_SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Of the session of a small MERGE, or while the state of a small log is computed.

Adaptive execution makes a job of each stage, and plans in between.
"""

OPEN_COST = "spark.sql.files.openCostInBytes"
_OPEN_COST_BYTES = 4 * 1024 * 1024
"""What Spark counts by default for opening a file, as if so much was read."""
_SHARE_BYTES = 64 * 1024 * 1024
"""What opening all files of a batch counts at the most, for each core: half of a task of Spark's."""


def open_cost(files: int, cores: int) -> int:
    """Return the bytes to count for opening a file, so that each core has about one task of small files.

    By Spark's default 31 small files are a task, whose start, statistics and file of the table cost more
    than to read them.
    """
    return min(_OPEN_COST_BYTES, _SHARE_BYTES * cores // max(files, 1))


def is_small_batch(rows: int) -> bool:
    """Return whether one task can go over the rows of a batch."""
    return rows <= SMALL_ROWS


def is_small_log(files: int) -> bool:
    """Return whether one task can reconstruct the state of a table."""
    return files <= LOG_FILES


def is_small_merge(rows: int, table_bytes: int | None) -> bool:
    """Return whether one task can do a MERGE.

    :param table_bytes: Of all files of the table; None if that is not known without a look at them.
    """
    return is_small_batch(rows) and table_bytes is not None and table_bytes <= TABLE_BYTES
