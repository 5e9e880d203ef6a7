"""Records of text files: which are not what was declared, and how that is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import BadRecordError
from airflow_provider_scope.spark.listing import FILE
from airflow_provider_scope.spark.values import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

MARK = "@@airflow-provider-scope-record "
"""How the message of an error begins that our own check of a record raised inside Spark."""
RECORD = "_scope_record"
"""Spark's text of a record that it could not parse, else NULL."""
SHOWN = 500
"""Characters of a record that are shown."""

NOT_UTF8 = "encoding"
STRAY_QUOTE = "quote"
SUSPICIONS = (NOT_UTF8, STRAY_QUOTE)
"""Rules that a good record may break: then the bytes of its file decide."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that may be wrong with a record."""

    rule: str
    """In words: ``amount is not decimal(10,2)``."""
    passes: str
    """SQL over the columns of the record; it does not pass if this is false or NULL."""
    value: str
    """SQL of the text that is shown."""


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

    def strict(self) -> DataFrame:
        """Give the typed rows and ``FILE``; reading them fails at the first record that breaks a rule."""
        typed = [F.expr(value).alias(name) for name, value in self.values]
        return failing(self.rows, self.checks, self.record).select(*typed, F.col(FILE))


def quoted(name: str) -> str:
    """Give a column's name as Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def parsed(what: str) -> Check:
    """Check that Spark could parse a record.

    :param what: The rule in words.
    """
    return Check(what, f"{RECORD} IS NULL", RECORD)


def suspicions(name: str, quote: str) -> list[Check]:
    """Check that a text holds nothing that a parser may have made of something else.

    A decoder writes a replacement character for bytes that it cannot read. And a quote inside of a field that
    is not quoted may be the other half of one that was left open on the line before.

    :param quote: Empty if quotes tell nothing.
    """
    found = [Check(NOT_UTF8, f"NOT coalesce(contains({quoted(name)}, '{REPLACEMENT}'), false)", quoted(name))]
    if quote:
        text = f"NOT coalesce(contains({quoted(name)}, {literal(quote)}), false)"
        found.append(Check(STRAY_QUOTE, text, quoted(name)))
    return found


def broken_rule(checks: Sequence[Check]) -> str:
    """Give SQL for the first rule that a record breaks, NULL if it is good."""
    cases = " ".join(f"WHEN NOT coalesce({c.passes}, false) THEN {literal(c.rule)}" for c in checks)
    return f"CASE {cases} END" if checks else "CAST(NULL AS string)"


def shown(checks: Sequence[Check]) -> str:
    """Give SQL for the text that goes with the first rule that a record breaks."""
    cases = " ".join(
        f"WHEN NOT coalesce({c.passes}, false) THEN left(CAST({c.value} AS string), {SHOWN})" for c in checks
    )
    return f"CASE {cases} END"


def failing(rows: DataFrame, checks: Sequence[Check], record: str, file: str = FILE) -> DataFrame:
    """Let a read fail at the first record that breaks a rule.

    :param rows: The columns that the checks name.
    :param record: SQL of the whole record, for the message.
    :param file: SQL of its file.
    """
    if not checks:
        return rows
    told = (
        f"to_json(named_struct('file', {file}, 'rule', {broken_rule(checks)}, 'value', {shown(checks)}, "
        f"'record', left({record}, {SHOWN})))"
    )
    passes = " AND ".join(f"coalesce({c.passes}, false)" for c in checks)
    # What is not deterministic stays where it is: the optimizer must not drop a bad record by the user's
    # WHERE first, nor leave the check out because the SELECT does not need its columns.
    stays = "spark_partition_id() >= 0"
    return rows.where(
        F.expr(f"if({passes}, {stays}, CAST(raise_error(concat('{MARK}', {told})) AS boolean))")
    )


@dataclass(frozen=True, slots=True)
class BadRecord:
    """What a check told about a record."""

    file: str | None
    """None if it is not known."""
    rule: str
    value: str | None
    record: str | None

    def error(self, place: str, hint: str) -> BadRecordError:
        """Give the error of a batch that stops at this record.

        :param place: The file as users write it, and the batch.
        :param hint: What may help for this format; empty if nothing.
        """
        value = f": {self.value!r}" if self.value is not None and self.value != self.record else ""
        record = f" The record: {self.record!r}." if self.record else ""
        return BadRecordError(
            f"{place} has a record that cannot be loaded: {self.rule}{value}.{record}",
            kept="the batches before it; this one wrote no row and stays logged",
            do="correct the declaration (`columns`, `options`) and run again; or mend the file, and give the "
            "batch up with `airflow scope abandon`: its files are loaded by the next run as they are then"
            + (f". {hint}" if hint else ""),
        )


def bad_record(text: str) -> BadRecord | None:
    """Find what our check told in the text of Spark's error.

    :return: None if the error is another one.
    """
    _, found, rest = text.partition(MARK)
    if not found:
        return None
    value: dict[str, Any] = json.JSONDecoder().raw_decode(rest)[0]
    return BadRecord(value.get("file"), value["rule"], value.get("value"), value.get("record"))
