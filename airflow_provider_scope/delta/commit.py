"""A commit of a Delta table, as its file in the log holds it, and how far its statistics can be trusted.

No other module parses such a file.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, Literal

from airflow_provider_scope.exceptions import TableUnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def is_restore(operation: object) -> bool:
    """Whether an operation of a commit brings an earlier version of the table back."""
    return str(operation).upper() == "RESTORE"


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    version: int
    actions: Sequence[dict[str, Any]]

    @property
    def info(self) -> dict[str, Any]:
        """The commit's own description (``commitInfo``); empty if it has none."""
        return next((dict(info) for info in self.of("commitInfo") if info), {})

    @property
    def operation(self) -> str:
        """Such as ``"WRITE"``; empty if the commit does not name it."""
        return str(self.info.get("operation") or "")

    @property
    def is_restore(self) -> bool:
        """Whether the table's rows are earlier ones: a CLONE puts those of a copy there, and keeps the id."""
        return is_restore(self.operation) or (self.operation == "CLONE" and self.version > 0)

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The table's metadata from this version on; None if the commit does not change it."""
        return next((action for action in self.of("metaData") if action), None)

    def of(self, kind: str) -> list[Any]:
        """List the actions of one kind, such as ``"add"``, in their order."""
        return [action[kind] for action in self.actions if action.get(kind) is not None]


def written_rows(metrics: Mapping[str, Any]) -> int | None:
    """Return how many rows a WRITE of Spark's added, by its metrics; None if these do not tell.

    Where it replaced a part of the table, Delta counts other rows of the same files as well: it copied them.
    """
    rows = metrics.get("numOutputRows")
    return None if rows is None else int(rows) - int(metrics.get("numCopiedRows") or 0)


class DamagedCommitError(ValueError):
    """The file of a commit is not whole; the text names it.

    :param name: The file's name, for people.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} is damaged: {why}")
        self.do = repair_advice(name)


def repair_advice(name: str) -> str:
    """Say what to do about a commit whose file is damaged.

    :param name: The file's name.
    """
    checksums = f"{name.removesuffix('.json')}.crc and, on a disk, .{name}.crc"
    return (
        f"restore {name} from a copy. If there is none, and it is the table's newest version, move the "
        f"file away, with {checksums}, while nothing writes to the table: the table is then as it was before "
        "that commit. The next try reads the log again"
    )


def path_of(table: str, version: int) -> str:
    """Name the file of a commit.

    :param table: Canonical URI.
    """
    return f"{table}/_delta_log/{version:020}.json"


def parse(version: int, data: bytes, only: tuple[str, ...] = ()) -> DeltaCommit:
    """Read the file of a commit.

    :param only: The kinds of action that are needed; empty: all. A commit may name a million files, and lines
        without these kinds are not decoded.
    :raises DamagedCommitError: The file has no line, or a line that is no JSON object.
    """
    name = f"{version:020}.json"
    if not data or data.isspace():
        # No writer makes such a file: a power cut leaves it, with the length gone before the content came.
        raise DamagedCommitError(name, f"it holds nothing in {len(data)} bytes")
    marks = [f'"{kind}"'.encode() for kind in only]
    actions = []
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.strip()
        if not text:
            continue
        try:
            is_needed = not marks or any(mark in text for mark in marks)
            action = json.loads(text) if is_needed else {}
        except ValueError as err:
            raise DamagedCommitError(name, f"line {number:,} is not JSON ({err})") from err
        if not isinstance(action, dict) or not (text.startswith(b"{") and text.endswith(b"}")):
            raise DamagedCommitError(name, f"line {number:,} is not an object")
        if is_needed:
            actions.append(action)
    return DeltaCommit(version, actions)


@contextmanager
def explaining_damage(name: str, kept: str) -> Iterator[None]:
    """Turn any error in reading a commit, which is then not as Delta writes it, into one error.

    :param name: The file's name, for people.
    :param kept: What the error says is kept.
    :raises TableUnreadableError: The code inside raised such an error.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        damage = err if isinstance(err, DamagedCommitError) else None
        raise TableUnreadableError(
            f"The commit {name} could not be understood: {damage or repr(err)}.",
            kept=kept,
            do=damage.do if damage else "check the file; the next try reads it again",
        ) from err


EXACT_SINCE = {"date": 1583, "timestamp": 1973, "timestamp_ntz": 1583}
"""Type -> the year from which on the statistics have its values as they were written.

Delta 3.2 and 3.3 write instants in the session's zone and cut off the seconds of its offset; the last zone
whose offset had seconds was Liberia's, until January 1972. Before October 1582 writers differ by the days
between two calendars.
"""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ROUNDED = Decimal("1e-14")
"""More than the relative error of a decimal that was converted to a float of 64 bits."""


def are_exact(kind: str) -> bool:
    """Whether all values of a type may be compared with the statistics of files."""
    return kind not in EXACT_SINCE and not _DECIMAL.fullmatch(kind)


def loosened(kind: str, value: str, sign: Literal[-1, 1]) -> str | None:
    """Move a bound outwards, so that no file with rows inside the bound is skipped because of its statistics.

    delta-rs keeps the statistics of decimals as floats, so the range of a file may be off by a rounding.

    :param value: The bound as Spark writes it as text.
    :param sign: -1 for a lower bound, 1 for an upper one.
    :return: The value itself, if its statistics are exact; None if no file may be skipped.
    """
    if kind in EXACT_SINCE:
        return value if value[:4].isdecimal() and int(value[:4]) >= EXACT_SINCE[kind] else None
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None:
        return value
    digits, scale = int(decimal[1]), int(decimal[2])
    with localcontext(prec=2 * digits):
        number, step = Decimal(value), Decimal(1).scaleb(-scale)
        most = Decimal(10) ** (digits - scale) - step
        moved = number + sign * (abs(number) * _ROUNDED + step)
        return f"{min(max(moved, -most), most).quantize(step):f}"
