"""Settings of Spark on which it rests that the rows of the files are the rows of the table."""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """One value, whatever a cluster's defaults, a connection or a user say."""

    value: str
    reason: str
    """What could happen with another value."""


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
    "spark.sql.parquet.outputTimestampType": Setting(
        "TIMESTAMP_MICROS",
        "a time after 2262 would be written in a form (INT96) that other readers take for another time",
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
    "spark.sql.mapKeyDedupPolicy": Setting("EXCEPTION", "one value of a key that occurs twice would be lost"),
    # Spark 4.2 hands parameters to the parser otherwise, and Delta 4.4's parser drops them there.
    "spark.sql.legacy.parameterSubstitution.constantsOnly": Setting("true", "sql_params would be lost"),
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": Setting(
        "true", "rows outside of the range would be added, and doubled by the next run"
    ),
}
"""What the application sets when it starts."""
OF_TABLES = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
"""What the application sets then if a Delta table is its source: its format has one calendar alone. Files
that an old Spark wrote by another one say so themselves."""
EXACT_AT_START = {
    "spark.files.ignoreCorruptFiles": Setting("false", _SKIPPED),
    "spark.files.ignoreMissingFiles": Setting("false", _SKIPPED),
}
"""What Spark takes only before it starts."""


def contradiction(name: str, value: object) -> Setting | None:
    """Give the setting that a user's value contradicts; None if it contradicts none."""
    setting = EXACT.get(name) or EXACT_AT_START.get(name)
    if setting is None or str(value).strip().lower() == setting.value.lower():
        return None
    return setting
