"""The records of files with their numbers, and with the rule that each breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark.checks import broken_rule, broken_value
from airflow_provider_scope.spark.listing import FILE, number_in_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_scope.spark.checks import Records

RULE = "_scope_rule"
"""The first rule that a record breaks; NULL if it is good."""
VALUE = "_scope_value"
"""The text that breaks it."""
RAW = "_scope_raw"
"""The whole record as text, if it is bad."""
NUMBER = "_scope_number"
"""The record's number in its file, from 1."""


def judged(piece: Records) -> DataFrame:
    """Give all records: typed values, NULL in those of a bad record, with ``FILE`` and the names above."""
    # The number first: behind a filter it would count other rows.
    rows = piece.rows.select("*", number_in_file().alias(NUMBER))
    rows = rows.select(
        "*",
        F.expr(broken_rule(piece.checks)).alias(RULE),
        F.expr(broken_value(piece.checks)).alias(VALUE),
    )
    typed = [F.expr(f"CASE WHEN {RULE} IS NULL THEN {value} END").alias(name) for name, value in piece.values]
    return rows.select(
        *typed,
        FILE,
        RULE,
        VALUE,
        F.expr(f"CASE WHEN {RULE} IS NOT NULL THEN {piece.record} END").alias(RAW),
        NUMBER,
    )
