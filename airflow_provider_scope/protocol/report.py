"""What a run did, for people and for XCom."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_scope import expectations
from airflow_provider_scope.exceptions import EmptyRefreshError, SourceEmptyError
from airflow_provider_scope.protocol import bad_records
from airflow_provider_scope.protocol.seen import Tally
from airflow_provider_scope.values import FileEntry, base_name, counted, iso_time, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_provider_scope.expectations import RuleCount
    from airflow_provider_scope.protocol.bad_records import Quarantined
    from airflow_provider_scope.protocol.records import CommitRecord, OffsetEntry


XCOM_LIMIT_BYTES = 4096
RULES_AT_MOST = 10
PATTERN_LENGTH = 50
"""Of a pattern that matches nothing."""
_OF_THE_TABLE = ("inserted", "updated", "deleted")
_OF_THE_BATCH = {
    "deduplicated": "deduplicated",
    "hard_deleted": "marked as deleted",
    "unchanged": "without effect",
}
"""What row-level writes count: rows of the table, and rows of the batch that are none of the table."""
READ, REMAINING = "what is read", "what is left"
"""Topics of warnings: of what a run is about to read, and of what it leaves, which only its end tells."""
WARNING_LENGTH = 500
"""Of a warning, in XCom."""
NAME_LENGTH = 100
"""Of a rule, in XCom."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch that this run recorded as committed."""

    record: CommitRecord
    mode: str
    slice_text: str = ""
    """What was read, of a source without files."""
    already_there: bool = False
    """It was in the table before this run: an earlier run died between the table and the record."""

    @classmethod
    def of(cls, entry: OffsetEntry, record: CommitRecord, *, already_there: bool = False) -> BatchReport:
        """Keep what people want to know of an entry: a report does not hold the names of all files."""
        mode = entry.mode if entry.where is None else "replace"
        return cls(record, mode, "" if entry.slice.audited else entry.slice.text(), already_there)


@dataclass(slots=True)
class RunReport:
    """The result of one run."""

    roots: tuple[str, ...]
    listed: int = 0
    matched: int = 0
    newest: FileEntry | None = None
    patterns: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    """Some names of files, if none matches the patterns."""
    nothing: str = ""
    """What a source that has no files says if there is nothing to load."""
    lag: str = ""
    """How far the table is behind its source, for sources that tell; empty if it is not."""
    warnings: dict[str, str] = field(default_factory=dict)
    """Topic -> what people should know, though nothing failed."""
    batches: list[BatchReport] = field(default_factory=list)
    left_out: Tally = field(default_factory=Tally)
    already_loaded: int = 0
    pending_files: int = 0
    """New files that ``max_batches_per_run`` left for the next run."""
    superseded: tuple[int, ...] = ()
    """Batches that never ran, because a full refresh replaces what they would have added."""
    table_version: int | None = None
    watermark_ms: int | None = None
    safety_buffer_seconds: float = 0
    now_ms: int = 0

    @property
    def _loaded(self) -> list[CommitRecord]:
        return [batch.record for batch in self.batches if not batch.record.abandoned]

    @property
    def files(self) -> int:
        return sum(record.files for record in self._loaded)

    @property
    def size_bytes(self) -> int:
        return sum(record.size_bytes for record in self._loaded)

    @property
    def rows(self) -> int | None:
        """Rows of the committed batches; None if the table's log does not tell for one of them."""
        counts = [record.rows for record in self._loaded]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def quarantined(self) -> dict[str, Quarantined]:
        """``records``, ``rows`` or ``files`` -> those of the committed batches that are in the quarantine."""
        return bad_records.total(batch.record.quarantined for batch in self.batches)

    @property
    def warned(self) -> dict[str, RuleCount]:
        """Rule of the level ``warn`` -> the rows of the committed batches that break it."""
        return expectations.total(batch.record.warned for batch in self.batches)

    @property
    def rescued(self) -> Counter[str]:
        """Keys and columns -> records of the committed batches with a value of it that was rescued."""
        return _sum(item for batch in self.batches for item in batch.record.rescued.items())

    @property
    def changes(self) -> Counter[str]:
        """Rows that row-level writes inserted, updated, deleted, …, in this order."""
        return _sum(item for batch in self.batches for item in batch.record.changes.items())

    @property
    def warning_texts(self) -> list[str]:
        """What the warnings say, each text once, and which rules rows break that were loaded."""
        return [*dict.fromkeys(self.warnings.values()), *expectations.lines(self.warned)]

    @property
    def loaded_nothing(self) -> bool:
        """Whether the table is as it was: no batch, or none with a row, a file or a change."""
        return all(
            batch.record.abandoned
            or (
                batch.mode == "append"
                and batch.record.rows == 0
                and not batch.record.files
                and not any(batch.record.changes.values())
            )
            for batch in self.batches
        )

    @property
    def matches_nothing(self) -> bool:
        """Whether there are files, and none of them counts: most likely the patterns are wrong."""
        return self.listed > 0 and self.matched == 0

    def why_nothing(self) -> str:
        if self.nothing:
            return self.nothing
        where = ", ".join(self.roots)
        if not self.listed:
            return f"0 files: {where} holds no file"
        if not self.matched:
            examples = f", such as {', '.join(self.unmatched)}," if self.unmatched else ""
            patterns = "".join(f" {_short(pattern)}" for pattern in self.patterns)
            files = f"the {self.listed:,} files in {where}{examples}"
            return f"0 files: none of {files} matches the patterns{patterns}"
        name = "unknown"
        if self.newest:
            name = f"{printable(base_name(self.newest.path))} ({iso_time(self.newest.modified_ms)[:19]}Z)"
        newest = f"the newest of {self.matched:,} files in {where} is {name}"
        parts = []
        if self.already_loaded:
            parts.append(f"{self.already_loaded:,} were loaded before")
        parts += [self._because(reason) for reason in sorted(self.left_out.counts)]
        return f"0 new files: {newest}; " + ", ".join(parts)

    def _because(self, reason: str) -> str:
        count = self.left_out.counts[reason]
        if reason == "too young":
            buffer = f"safety_buffer_seconds={self.safety_buffer_seconds:g}"
            return f"{count:,} held back by {buffer}{self.taken_from(reason)}"
        return f"{count:,} left out: {reason}"

    def taken_from(self, reason: str) -> str:
        """Say from when on a run takes the files that are too young; nothing for other reasons.

        The next run may still be too early: a file may be dated in the future.
        """
        if reason != "too young" or reason not in self.left_out.times:
            return ""
        first, last = (
            iso_time(math.ceil(at_ms / 1000 + self.safety_buffer_seconds) * 1000)[:19] + "Z"
            for at_ms in self.left_out.times[reason]
        )
        if first == last:
            return f" (taken from {first} on)"
        return f" (the first is taken from {first} on, the last from {last} on)"

    def text(self) -> str:
        """Write the report as a readable table."""
        lines = self._table() if self.batches else [self.why_nothing()]
        if self.quarantined:
            lines.append(f"quarantined: {bad_records.text(self.quarantined)}")
            lines += [f"    {line}" for line in bad_records.rule_lines(self.quarantined)]
        if self.rescued:
            lines.append(f"rescued: {rescued_text(self.rescued)}")
        if self.changes:
            lines.append(changes_text(self.changes))
        if self.superseded:
            lines.append(f"superseded by a full refresh: batches {', '.join(map(str, self.superseded))}")
        if self.pending_files:
            lines.append(f"left for the next run (max_batches_per_run): {self.pending_files:,} files")
        if self.lag:
            lines.append(f"left for the next run: {self.lag}")
        lines += [f"warning: {text}" for text in self.warning_texts]
        for reason in sorted(self.left_out.counts):
            lines.append(f"not loaded, {self._because(reason)}")
            lines += [f"    {printable(path)}" for path in self.left_out.names.get(reason, [])]
        if self.watermark_ms is not None:
            lines.append(f"watermark: {iso_time(self.watermark_ms)}")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """Write a line for each batch, without the columns that its source does not have."""
        has_files = any(batch.record.files or not batch.slice_text for batch in self.batches)
        has_bytes = has_files or any(batch.record.size_bytes for batch in self.batches)
        widths = (7 * has_files, 15 * has_bytes, 13, 8)

        def line(batch: str, mode: str, *cells: str, note: str = "") -> str:
            shown = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True) if width]
            return f"{batch:>7}  {mode:9} {' '.join(shown)}{note}"

        rows = _number(self.rows)
        version = "" if self.table_version is None else str(self.table_version)
        return [
            line("batch", "mode", "files", "bytes", "rows", "version"),
            *(
                line(
                    str(batch.record.seq),
                    batch.mode,
                    f"{batch.record.files:,}",
                    f"{batch.record.size_bytes:,}",
                    _number(batch.record.rows),
                    str(batch.record.table_version),
                    note=_note(batch),
                )
                for batch in self.batches
            ),
            line("total", "", f"{self.files:,}", f"{self.size_bytes:,}", rows, version),
        ]

    def to_xcom(self) -> dict[str, Any]:
        """Make a plain dict that stays under 4 KiB as JSON.

        What is too long loses the names of files first, then the end of ``why``, warnings, and rare rules.
        """
        rules_at_most = RULES_AT_MOST
        value: dict[str, Any] = {
            "batches": len(self.batches),
            "files": self.files,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "first_batch": self.batches[0].record.seq if self.batches else None,
            "last_batch": self.batches[-1].record.seq if self.batches else None,
            "already_in_table": [b.record.seq for b in self.batches if b.already_there][:20],
            "superseded": list(self.superseded)[:20],
            "pending_files": self.pending_files,
            **self._most_frequent(rules_at_most),
            "changes": dict(self.changes),
            "warnings": [text[:WARNING_LENGTH] for text in self.warning_texts],
            "left_out": dict(self.left_out.counts),
            "left_out_names": {r: list(names) for r, names in self.left_out.names.items()},
            "table_version": self.table_version,
            "watermark": None if self.watermark_ms is None else iso_time(self.watermark_ms),
        }
        if not self.batches:
            value["why"] = self.why_nothing()[:1000]
        while (excess := json_length(value) - XCOM_LIMIT_BYTES) > 0:
            if any(value["left_out_names"].values()):
                _drop_names(value["left_out_names"], excess)
            elif value.get("why"):
                value["why"] = value["why"][:-100]  # folders named in another script than Latin
            elif value["warnings"]:
                value["warnings"].pop()
            elif rules_at_most:
                rules_at_most -= 1
                value |= self._most_frequent(rules_at_most)
            else:
                break
        return value

    def _most_frequent(self, at_most: int) -> dict[str, dict[str, Any]]:
        """Count what broke a rule or was rescued, by name: so many names of each, the most frequent first."""
        return {
            "quarantined": _most(self.quarantined, at_most),
            "warned": _most_warned(self.warned, at_most),
            "rescued": dict(_sum_by_short_name(self.rescued.most_common(at_most))),
        }


def _sum(counts: Iterable[tuple[str, int]]) -> Counter[str]:
    """Add the counts of each name, in the order in which the names come first."""
    totals: Counter[str] = Counter()
    for name, count in counts:
        totals[name] += count
    return totals


def _sum_by_short_name(counts: Iterable[tuple[str, int]]) -> Counter[str]:
    """Cut names for XCom: those that begin alike count together."""
    return _sum((name[:NAME_LENGTH], count) for name, count in counts)


def _drop_names(names: dict[str, list[str]], excess: int) -> None:
    """Drop names, of the longest list first, until about so many bytes of JSON are saved or none is left."""
    sizes = {reason: [json_length(name) + 2 for name in listed] for reason, listed in names.items()}
    while excess > 0 and any(sizes.values()):
        longest = max(sizes, key=lambda reason: sum(sizes[reason]))
        names[longest].pop()
        excess -= sizes[longest].pop()


def rescued_text(rescued: Counter[str]) -> str:
    """List the keys that were rescued, the most frequent first."""
    return ", ".join(
        f"{printable(key)} of {counted(count, 'record')}" for key, count in rescued.most_common()
    )


def changes_text(changes: Mapping[str, int]) -> str:
    """Write what row-level writes did as a line: ``rows: 2 inserted; in the batch: 1 deduplicated``."""
    of_table = ", ".join(f"{changes[name]:,} {name}" for name in _OF_THE_TABLE if name in changes)
    of_batch = ", ".join(
        f"{changes[name]:,} {text}" for name, text in _OF_THE_BATCH.items() if name in changes
    )
    return "; ".join(
        f"{where}: {counts}" for where, counts in (("rows", of_table), ("in the batch", of_batch)) if counts
    )


def files_text(files: Sequence[FileEntry]) -> str:
    """List the files of a batch and their estimated bytes as a readable table, the largest first.

    The estimate of a structured stream is the length of all files that belong to it.
    """
    largest = sorted(files, key=lambda file: (-file.size_bytes, file.path))
    lines = [f"{file.size_bytes:>15,}  {printable(file.path)}" for file in largest]
    total = sum(file.size_bytes for file in files)
    return "\n".join([f"{'bytes':>15}  file", *lines, f"{total:>15,}  total of {len(files):,}"])


def _most(quarantined: Mapping[str, Quarantined], at_most: int) -> dict[str, dict[str, Any]]:
    """Count what is in the quarantine, with the most frequent rules and the sum of the others."""
    counts = Counter({(unit, rule): n for unit, bad in quarantined.items() for rule, n in bad.rules.items()})
    most = counts.most_common(at_most)
    value: dict[str, dict[str, Any]] = {}
    for unit, bad in quarantined.items():
        rules = _sum_by_short_name((rule, count) for (of, rule), count in most if of == unit)
        if other_count := bad.count - rules.total():
            rules["other rules"] += other_count
        value[unit] = {"count": bad.count, "out_of": bad.out_of, "rules": dict(rules)}
    return value


def _most_warned(warned: Mapping[str, RuleCount], at_most: int) -> dict[str, dict[str, int]]:
    """Count the rows that break the most frequent rules of the level ``warn``."""
    broken = [(rule, rows) for rule, rows in warned.items() if rows.count]
    return {rule[:NAME_LENGTH]: asdict(rows) for rule, rows in broken[:at_most]}


def json_length(value: object) -> int:
    return len(json.dumps(value))


def _number(rows: int | None) -> str:
    return "?" if rows is None else f"{rows:,}"


def _note(batch: BatchReport) -> str:
    notes = [batch.slice_text] if batch.slice_text else []
    if batch.record.abandoned:
        notes.append(f"abandoned: {'it counts' if batch.slice_text else 'its files count'} as new")
    elif batch.already_there:
        notes.append("was in the table already; recorded now")
    return "  " + "; ".join(notes) if notes else ""


def _short(pattern: str) -> str:
    return pattern if len(pattern) <= PATTERN_LENGTH else pattern[:PATTERN_LENGTH] + "…"


def check_loadable(report: RunReport, table: str, *, fail_on_empty: bool, would_empty: bool) -> None:
    """Refuse a run without files where that is an error.

    :param report: What the listing held.
    :param fail_on_empty: The user says that there are always files.
    :param would_empty: The run would replace rows by none.
    :raises SourceEmptyError: No file that is there matches the patterns, and there have to be some.
    :raises EmptyRefreshError: A refresh has nothing to load.
    """
    if fail_on_empty and not report.matched:
        raise SourceEmptyError(
            f"The source holds nothing to load (fail_on_empty=True): {report.why_nothing()}.",
            kept="the table and all records; nothing was written",
            do="check `roots`, `format` and `patterns`; if the files come later, the next try takes them",
        )
    if would_empty:
        raise EmptyRefreshError(
            f"A full refresh of {table} found no file to load: {report.why_nothing()}.",
            kept="the table as it is; nothing was logged",
            do="check `roots` and `patterns`. To empty the table on purpose, delete its rows",
        )
