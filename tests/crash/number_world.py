"""The worlds of a source that is not files; nothing below ``execution`` knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_scope.exceptions import SourceFileGoneError
from tests.crash.world import DeltaWorld, MemoryWorld
from tests.support.faulty_storage import open_gate
from tests.support.ledger import Ledger, LedgerInDelta, LedgerInMemory, LedgerSlice, cursor_of
from tests.support.numbers import (
    Numbers,
    NumbersInDelta,
    NumbersInMemory,
    NumbersInTurn,
    NumberSlice,
    row_of,
)

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.source import Source
    from airflow_provider_scope.sources.files.spec import FileSource
    from tests.support.batch_loop import BatchLoop
    from tests.support.faulty_storage import Gate
    from tests.support.memory_engine import Row


class _NumberWorld:
    """What a world of numbers does otherwise than one of files."""

    numbers: ClassVar[type[Numbers]] = Numbers
    wrong: ClassVar[Any] = NumberSlice(9, 3)
    """A slice that the source cannot have."""
    storage: Any
    root: str
    max_files: int

    @property
    def path(self) -> str:
        return f"{self.root}/numbers.txt"

    def source(self, log: CheckpointLog, spec: FileSource) -> Source:
        return self.numbers(log, self.path, self.max_files)

    def add_number(self) -> int:
        """Write the next number behind the others."""
        text = self.storage.read(self.path) or b""
        number = len(text.splitlines()) + 1
        self.storage.replace(self.path, text + self.line_of(number).encode())
        return number

    def line_of(self, number: int) -> str:
        return f"{number}\n"


class NumberWorld(_NumberWorld, MemoryWorld):
    """In memory: a file that is dropped is the next number."""

    def engine(self, gate: Gate) -> BatchLoop:
        return NumbersInMemory(self.delta, self.memory, gate)

    def drop(self, name: str, at: int, *, day: int = 1, ids: int = 1) -> str:
        number = self.add_number()
        path = MemoryWorld.drop(self, f"{number}", at)
        self.memory.content[path] = [row_of(number)]
        return path

    def drop_source(self) -> None:
        super().drop_source()
        self.storage.delete(self.path)

    def name_of(self, row: Row) -> Any:
        return row[1]


class NumberInTurnWorld(NumberWorld):
    numbers = NumbersInTurn


class LedgerWorld(NumberWorld):
    """A file that is dropped is the next row of a source with a state."""

    has_state = True
    numbers = Ledger
    wrong = LedgerSlice("no state", 1)

    def line_of(self, number: int) -> str:
        return f"{cursor_of(number)} {number}\n"

    def engine(self, gate: Gate) -> BatchLoop:
        return LedgerInMemory(self.delta, self.memory, gate)


class NumberDeltaWorld(_NumberWorld, DeltaWorld):
    """On a disk, with a Delta table."""

    def engine(self, gate: Gate) -> BatchLoop:
        return NumbersInDelta(gate, self.storage, self.path)

    def drop(self, name: str, at: int, *, day: int = 1, ids: int = 2) -> str:
        (self.folder / "landing").mkdir(parents=True, exist_ok=True)
        self.add_number()
        return self.path


class NumberInTurnDeltaWorld(NumberDeltaWorld):
    numbers = NumbersInTurn


class LedgerDeltaWorld(NumberDeltaWorld):
    numbers = Ledger

    def line_of(self, number: int) -> str:
        return f"{cursor_of(number)} {number}\n"

    def engine(self, gate: Gate) -> BatchLoop:
        return LedgerInDelta(gate, self.storage, self.path)


def without_three(world: NumberDeltaWorld) -> BatchLoop:
    """Return an engine that cannot read the batch with number 3."""
    engine = world.engine(open_gate)
    read = engine.read

    def read_others(entry: OffsetEntry) -> Any:
        if 3 in entry.slice:
            raise SourceFileGoneError(f"batch {entry.seq} cannot be read")
        return read(entry)

    engine.read = read_others  # type: ignore[method-assign]
    return engine
