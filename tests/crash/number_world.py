"""The world of a source that only the tests have; nothing below ``execution`` knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tests.crash.world import MemoryWorld
from tests.support.numbers import Numbers, NumbersInMemory, NumberSlice, row_of

if TYPE_CHECKING:
    from airflow_provider_scope.protocol.log import CheckpointLog
    from airflow_provider_scope.protocol.source import Source
    from airflow_provider_scope.sources.files.spec import FileSource
    from tests.support.batch_loop import BatchLoop
    from tests.support.faulty_storage import Gate
    from tests.support.memory_engine import Row


class NumberWorld(MemoryWorld):
    """A file that is dropped is the next number, behind the others."""

    wrong: ClassVar[Any] = NumberSlice(9, 3)
    """A slice that the source cannot have."""

    @property
    def path(self) -> str:
        return f"{self.root}/numbers.txt"

    def source(self, log: CheckpointLog, spec: FileSource) -> Source:
        return Numbers(log, self.path, self.max_files)

    def engine(self, gate: Gate) -> BatchLoop:
        return NumbersInMemory(self.delta, self.memory, gate)

    def drop(self, name: str, at: int, *, day: int = 1, ids: int = 1) -> str:
        text = self.memory.read(self.path) or b""
        number = len(text.splitlines()) + 1
        self.memory.replace(self.path, text + f"{number}\n".encode())
        path = super().drop(f"{number}", at)
        self.memory.content[path] = [row_of(number)]
        return path

    def drop_source(self) -> None:
        super().drop_source()
        self.memory.delete(self.path)

    def name_of(self, row: Row) -> Any:
        return row[1]
