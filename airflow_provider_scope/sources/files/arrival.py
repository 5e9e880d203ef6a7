"""Whether enough files have arrived, and what a wait for them does next."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.protocol.seen import NAMED_AT_MOST, Tally
from airflow_provider_scope.sources.files.discovery import Rules, candidates, unseen
from airflow_provider_scope.values import iso_time, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_scope.protocol.seen import History
    from airflow_provider_scope.values import FileEntry

NAMES_LIMIT_BYTES = 3072
"""JSON of the names in a result: with the rest it stays under the 4 KiB of an XCom."""

_NEVER_TOO_YOUNG = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The files for which a wait waits; times in milliseconds."""

    patterns: tuple[str, ...]
    min_files: int = 1
    min_bytes: int = 0
    modified_after_ms: int | None = None
    """Only files modified after this time count; since the epoch."""
    stable_for_ms: int = 30_000
    """The newest file that counts is at least this old."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The result of one listing."""

    files: tuple[FileEntry, ...]
    """The files that count, oldest first."""
    is_complete: bool
    text: str
    """What was found and what is missing, for people."""

    def to_xcom(self) -> dict[str, Any]:
        """Return a plain dict that stays under 4 KiB as JSON, whatever the number and length of names."""
        names: list[str] = []
        room = NAMES_LIMIT_BYTES
        for file in self.files[:NAMED_AT_MOST]:
            name = printable(file.path)
            room -= len(json.dumps(name)) + 2
            if room < 0:
                break
            names.append(name)
        return {
            "names": names,
            "count": len(self.files),
            "bytes": sum(file.size_bytes for file in self.files),
            "newest": iso_time(self.files[-1].modified_ms) if self.files else None,
        }

    def fingerprint(self) -> str:
        """Return a short text that differs if a file, its time or its size does."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            digest.update(f"{file.modified_ms} {file.size_bytes} {printable(file.path)}\n".encode())
        return digest.hexdigest()


def arrived(
    listing: Iterable[FileEntry],
    requirements: Requirements,
    roots: Sequence[str],
    *,
    now_ms: int,
    loaded: History | None = None,
    not_taken_over: Callable[[Sequence[FileEntry]], Sequence[FileEntry]] | None = None,
) -> Arrival:
    """Return whether a listing holds the required files.

    What counts is what the ingest operator would take: see ``discovery.candidates``. A file that is too
    young still counts, and makes the whole wait go on.

    :param now_ms: The time when the listing began: a file may have been written to during it.
    :param loaded: Files that a pipeline has loaded; they do not count, changed or not.
    :param not_taken_over: Gives those of some files that no other program loaded before the pipeline.
    """
    modified_after_ms = requirements.modified_after_ms
    rules = Rules(
        patterns=requirements.patterns,
        young_after_ms=_NEVER_TOO_YOUNG,
        starting_at_ms=None if modified_after_ms is None else modified_after_ms + 1,
    )
    listed = candidates(listing, rules, roots)
    files = listed.files
    if not_taken_over:
        files = tuple(not_taken_over(files))
    if loaded:
        files = tuple(unseen(files, loaded.find([file.path for file in files]), rules, None, Tally()))
    lacking = _lacking(files, requirements, now_ms)
    loaded_count = len(listed.files) - len(files)
    remarks = [f"{loaded_count:,} loaded before"] if loaded_count else []
    remarks += [f"{count:,} left out: {reason}" for reason, count in sorted(listed.left_out.counts.items())]
    size = sum(file.size_bytes for file in files)
    text = f"{len(files):,} files of {size:,} bytes in {', '.join(roots)}"
    text += f" ({', '.join(remarks)})" if remarks else ""
    return Arrival(files, not lacking, f"{text}; waiting for {', '.join(lacking)}" if lacking else text)


def absent(sentence: str) -> Arrival:
    """Return the result where a folder does not exist yet.

    :param sentence: The sentence about the missing folder.
    """
    return Arrival((), is_complete=False, text=f"{sentence} Waiting for it")


def _lacking(files: Sequence[FileEntry], requirements: Requirements, now_ms: int) -> list[str]:
    lacking = []
    if len(files) < requirements.min_files:
        lacking.append(f"{requirements.min_files:,} files")
    if sum(file.size_bytes for file in files) < requirements.min_bytes:
        lacking.append(f"{requirements.min_bytes:,} bytes")
    if files and files[-1].modified_ms > now_ms - requirements.stable_for_ms:
        age = (now_ms - files[-1].modified_ms) / 1000
        lacking.append(
            f"{requirements.stable_for_ms / 1000:g} s without a change, the last was {age:g} s ago"
        )
    return lacking
