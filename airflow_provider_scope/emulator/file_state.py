"""What the file service knows beyond the files themselves: expiry times and open handles."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Parts = tuple[str, ...]


class Expiry:
    """When files expire, in milliseconds since the epoch; kept on disk."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._times: dict[str, int] = json.loads(file.read_bytes()) if file.exists() else {}

    def of(self, parts: Parts) -> int:
        """Give the time of a file; 0 is never."""
        return self._times.get("/".join(parts), 0)

    def set(self, parts: Parts, milliseconds: int) -> None:
        """Set the time of a file; 0 is never."""
        if milliseconds:
            self._times["/".join(parts)] = milliseconds
        else:
            self._times.pop("/".join(parts), None)
        self._save()

    def moved(self, source: Parts, target: Parts | None) -> None:
        """Follow a rename or, without a target, a deletion, also of all that lies below."""
        if not self._times:
            return
        old = "/".join(source)
        kept: dict[str, int] = {}
        for path, time in self._times.items():
            if path == old or path.startswith(old + "/"):
                if target is not None:
                    kept["/".join(target) + path[len(old) :]] = time
            else:
                kept[path] = time
        if kept != self._times:
            self._times = kept
            self._save()

    def _save(self) -> None:
        written = self._file.with_suffix(".tmp")
        written.write_text(json.dumps(self._times), encoding="utf-8")
        written.replace(self._file)


@dataclass(slots=True)
class Handle:
    """A file that a writer has not closed; what is not flushed shows neither in length nor in time."""

    lease: str | None
    until: float
    pending: bytearray = field(default_factory=bytearray)


class Handles:
    """The open files. They live in memory: a kill loses what was not flushed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[Parts, Handle] = {}

    def get(self, parts: Parts) -> Handle | None:
        """Give the handle of a file that is open; one whose lease ran out is closed."""
        handle = self._open.get(parts)
        if handle is not None and handle.until <= self._clock():
            del self._open[parts]
            return None
        return handle

    def locked_against(self, parts: Parts, lease: str | None) -> bool:
        """Tell whether another writer has the file open."""
        handle = self.get(parts)
        return handle is not None and handle.lease != lease

    def open(self, parts: Parts, lease: str | None, seconds: float) -> Handle:
        """Open a file, or prolong its lease."""
        handle = self._open.setdefault(parts, Handle(lease, 0.0))
        handle.until = self._clock() + seconds
        return handle

    def close(self, parts: Parts) -> None:
        """Forget a file, and all below it."""
        for path in [path for path in self._open if path[: len(parts)] == parts]:
            del self._open[path]
