"""Lines at the edges of CSV files that are no records: those before the header, and a footer."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses

from airflow_provider_scope.exceptions import mask
from airflow_provider_scope.sources.files.spec import FOOTER, SKIP_ROWS, is_true
from airflow_provider_scope.spark.files.formats import NUMBER, RECORD
from airflow_provider_scope.spark.files.listing import (
    FILE,
    HEADER_HINT,
    NAMED,
    SHOWN,
    START,
    Problem,
    bad_files,
    path_of,
)
from airflow_provider_scope.spark.session import emit
from airflow_provider_scope.sql import literal, quoted
from airflow_provider_scope.values import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, Row

    from airflow_provider_scope.protocol.records import OffsetEntry

_PLACE, _LAST = "_scope_place", "_scope_last"
_NO_HEADER = "its header is not where it has to be"


def has_edges(options: Mapping[str, str]) -> bool:
    """Return whether lines may be no records; then the header is one of them for Spark's reader, too."""
    return SKIP_ROWS.lower() in options or FOOTER.lower() in options


def lines_before_records(options: Mapping[str, str]) -> int:
    """Count the lines before the first record that Spark's reader takes for records; a header is the last."""
    skipped = int(options.get(SKIP_ROWS.lower(), 0))
    return skipped + is_true(options.get("header")) if has_edges(options) else 0


def without_edges(
    entry: OffsetEntry, rows: DataFrame, names: Sequence[str], options: Mapping[str, str], separator: str
) -> DataFrame:
    """Leave out the lines that are no records, and number the others.

    Spark's reader does not know them: it took each line for a record.

    :raises BadFileError: A file has not its header after the lines before it.
    """
    before, footer = lines_before_records(options), options.get(FOOTER.lower())
    quote = options.get("quote", '"')
    in_file = Window.partitionBy(FILE).orderBy(START, _PLACE)
    numbered = rows.select("*", F.monotonically_increasing_id().alias(_PLACE)).select(
        *rows.columns,
        F.row_number().over(in_file).alias(NUMBER),
        F.lead(_PLACE).over(in_file).isNull().alias(_LAST),
    )
    fields = f"transform(array({', '.join(map(quoted, names))}), x -> coalesce(x, ''))"
    line = f"coalesce({RECORD}, array_join({fields}, {literal(separator)}))"
    edges = numbered.where(f"{NUMBER} <= {before} OR {_LAST}").selectExpr(
        FILE, NUMBER, _LAST, f"{line} AS line", f"if({RECORD} IS NULL, {fields}, NULL) AS fields"
    )
    lines: dict[str, list[Row]] = {}
    for row in sorted(edges.collect(), key=lambda row: (row[FILE], row[NUMBER])):
        lines.setdefault(row[FILE], []).append(row)
    problems, footers, left_out = [], dict[str, int](), dict[str, str]()
    for file, of_file in lines.items():
        last = of_file[-1]
        header = of_file[before - 1] if before and last[NUMBER] >= before else None
        if before and (header is None or _lower(header.fields or ()) != _lower(names)):
            shown = (header or last).line[:SHOWN]
            problems.append(Problem(file, _NO_HEADER, shown, HEADER_HINT))
        # Of a line that the parser has taken apart, quotes are gone.
        line = last.line.rstrip("\r\n")
        is_footer = footer and any(re.fullmatch(footer, text) for text in (line, line.replace(quote, "")))
        if is_footer and last[NUMBER] > before:
            footers[file] = last[NUMBER]
        texts = [row.line for row in of_file if row[NUMBER] < before or row[NUMBER] == footers.get(file)]
        if texts:
            left_out[file] = ", ".join(repr(mask(text)[:SHOWN]) for text in texts)
    if problems:
        raise bad_files(entry, problems)
    messages = [f"{path_of(entry, file)}: {texts}" for file, texts in [*left_out.items()][:NAMED]]
    if len(left_out) > NAMED:
        messages.append(f"also of {counted(len(left_out) - NAMED, 'more file')}")
    for message in messages:
        emit(event="columns", seq=entry.seq, message=f"lines that are no records: {message}")
    is_record = F.col(NUMBER) > before
    if footers:
        place = F.from_json(F.lit(json.dumps(footers)), "map<string,int>")[F.col(FILE)]
        is_record &= F.col(NUMBER) < F.coalesce(place, F.lit(2**31 - 1))
    records = numbered.where(is_record)
    return records.withColumn(NUMBER, F.col(NUMBER) - before).drop(_LAST)


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]
