"""A source that only the tests have: numbers from a text file, one a line, cut into ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_scope.core.slices import KINDS

if TYPE_CHECKING:
    from airflow_provider_scope.core.files import FileEntry, Position


@dataclass(frozen=True, slots=True)
class NumberSlice:
    """Numbers from ``first`` to ``last``, both included."""

    kind: ClassVar[str] = "numbers"
    first: int
    last: int

    @property
    def size_bytes(self) -> int:
        return 0

    @property
    def audited(self) -> tuple[FileEntry, ...]:
        return ()

    @property
    def highest(self) -> Position | None:
        return None

    def text(self) -> str:
        return f"{self.first} to {self.last}"


KINDS[NumberSlice.kind] = NumberSlice
