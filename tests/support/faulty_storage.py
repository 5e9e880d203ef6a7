"""Gates in front of everything that runs share, and the storage behind them.

A gate stands before each operation on something shared: a read or write of storage, a look at the
table, a commit to it. It decides what becomes of the operation and of the run. Between two gates
everything is private to a run, so a run that dies at gates dies everywhere that matters.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, TypeVar

from airflow_provider_scope.exceptions import SourceUnreadableError, StorageError
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_scope.stores.protocol import Storage
    from airflow_provider_scope.values import FileEntry

T = TypeVar("T")

KILLED = 77
"""Exit status of a process that a gate killed."""

When = Literal["before", "torn", "after"]
"""Where in an operation a process dies: before it, with half of it on the disk, or after it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operation on something shared."""

    name: str
    """Such as ``put offsets/00000000000000000000`` or ``commit 0``."""
    writes: bool = False
    by_application: bool = False
    """Done by the application that runs batches, which may outlive its runner."""


class LostAnswer(Exception):  # noqa: N818 - what happened, not a fault
    """The operation may have been done, but nobody says so."""


class Gate(Protocol):
    """Lets an operation happen, or not."""

    def __call__(self, call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        """Do ``effect``, or something worse.

        :param torn: Leaves what a process leaves that dies in the middle; None if nothing can.
        """


def open_gate(call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
    """Let everything happen."""
    return effect()


def before(name: str, do: Callable[[], object], *, passing: int = 0) -> Gate:
    """Return a gate that does something, once, before a call whose name begins so.

    :param passing: So many such calls pass before that.
    """
    numbers = itertools.count()

    def gate(call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        if call.name.startswith(name) and next(numbers) == passing:
            do()
        return effect()

    return gate


def after(name: str, do: Callable[[], object], *, passing: int = 0) -> Gate:
    """Return a gate that does something, once, after such a call."""
    numbers = itertools.count()

    def gate(call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        result = effect()
        if call.name.startswith(name) and next(numbers) == passing:
            do()
        return result

    return gate


def fails_at(name: str, error: BaseException) -> Gate:
    """Return a gate that raises an error in place of the first call whose name begins so."""

    def fail() -> None:
        raise error

    return before(name, fail)


class DiedError(BaseException):
    """The process is gone."""


def die() -> NoReturn:
    raise DiedError


def dies_after(count: int) -> Gate:
    """Return a gate that lets so many operations happen, and none after them.

    What a process does between two operations is its own: to die after one is to die before the next.
    """
    return before("", die, passing=count)


def no_space_for(name: str) -> Gate:
    """Return a gate that lets everything happen but one write, which finds the disk full."""

    def gate(call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        if call.name == name:
            raise StorageError("No space left on device")
        return effect()

    return gate


@dataclass
class Counting:
    """Lets everything happen and remembers it."""

    calls: list[Call] = field(default_factory=list)

    def __call__(self, call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        self.calls.append(call)
        return effect()

    @property
    def writes(self) -> list[str]:
        return [call.name for call in self.calls if call.writes]


@dataclass
class KillAt:
    """Ends the process at the n-th operation, counted from 0, as ``kill -9`` would."""

    number: int
    when: When
    passed: int = 0

    def __call__(self, call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        here = self.passed == self.number
        self.passed += 1
        if here and self.when == "torn" and torn:
            torn()
        if here and self.when == "after":
            effect()
        if here:
            os._exit(KILLED)
        return effect()


@dataclass
class LoseAt:
    """Loses the answer of the n-th operation, which happened or did not."""

    number: int
    happened: bool
    passed: int = 0

    def __call__(self, call: Call, effect: Callable[[], T], torn: Callable[[], None] | None = None) -> T:
        here = self.passed == self.number
        self.passed += 1
        if here and self.happened:
            effect()
        if here:
            raise LostAnswer(call.name)
        return effect()


class FaultyStorage:
    """A storage behind a gate. A lost answer becomes the error that the storage protocol asks for."""

    def __init__(self, inner: Storage, gate: Gate = open_gate) -> None:
        self.inner = inner
        self.gate = gate

    def walk(self, root: str) -> Iterator[FileEntry]:
        try:
            yield from self.gate(Call("walk"), lambda: list(self.inner.walk(root)))
        except LostAnswer as err:
            raise SourceUnreadableError(f"{root} could not be listed") from err

    def names(self, folder: str) -> list[str]:
        return self._pass("list", folder, lambda: self.inner.names(folder))

    def read(self, path: str, at_most: int = CONTROL_FILE_LIMIT_BYTES) -> bytes | None:
        return self._pass("read", path, lambda: self.inner.read(path, at_most))

    def put_if_absent(self, path: str, data: bytes) -> bytes:
        put = lambda: self.inner.put_if_absent(path, data)  # noqa: E731 - the same shape as the others
        return self._pass("put", path, put, lambda: _leave_half(path, data))

    def replace(self, path: str, data: bytes) -> None:
        put = lambda: self.inner.replace(path, data)  # noqa: E731
        self._pass("replace", path, put, lambda: _leave_half(path, data))

    def delete(self, path: str) -> None:
        self._pass("delete", path, lambda: self.inner.delete(path))

    def _pass(
        self, verb: str, path: str, effect: Callable[[], T], torn: Callable[[], None] | None = None
    ) -> T:
        name = path.rsplit("/_checkpoint/", maxsplit=1)[-1]
        call = Call(f"{verb} {name}", writes=verb in ("put", "replace", "delete"))
        try:
            return self.gate(call, effect, torn)
        except LostAnswer as err:
            raise StorageError(f"no answer to: {verb} {path}") from err


def _leave_half(path: str, data: bytes) -> None:
    """Leave what the local storage leaves when it dies while it writes: a hidden, unfinished file."""
    final = Path(path.removeprefix("file://"))
    final.parent.mkdir(parents=True, exist_ok=True)
    (final.parent / f".{final.name}.tmp").write_bytes(data[: len(data) // 2])
