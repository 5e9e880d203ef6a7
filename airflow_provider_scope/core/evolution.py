"""How a table grows with the SELECTs that are loaded into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_scope.core.schema import keeps_values, way_on, wider
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct."""

    name: str
    kind: Kind
    required: bool = False
    """Every row must bring a value: the field is NOT NULL, and the table does not compute it."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct; the columns of a table are one, too."""

    fields: tuple[Field, ...] = ()

    def by_name(self) -> dict[str, Field]:
        """Give the fields by their names in lower case, as Spark and Delta compare them."""
        return {item.name.lower(): item for item in self.fields}


@dataclass(frozen=True, slots=True)
class Array:
    """An array."""

    element: Kind


@dataclass(frozen=True, slots=True)
class Map:
    """A map."""

    key: Kind
    value: Kind


Kind = str | Struct | Array | Map
"""A type; one without parts as Spark's ``simpleString`` gives it."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """The table after a batch, and what is new in it."""

    columns: Struct
    added: tuple[str, ...]
    """Paths with types of the columns and fields that the table lacked."""
    widened: tuple[str, ...]
    """Paths with both types."""
    missing: tuple[str, ...]
    """Paths of columns and fields that the SELECT lacks."""

    @property
    def changes(self) -> bool:
        """Tell whether the table is to be changed."""
        return bool(self.added or self.widened)

    def told(self) -> str:
        """Say it in a line; empty if the SELECT has the table's columns."""
        return "; ".join(
            [
                *([f"the table gets {', '.join(self.added)}"] if self.added else []),
                *(f"{change.replace(' from ', ' is widened from ', 1)}" for change in self.widened),
                *([f"not in the SELECT: {', '.join(self.missing)}"] if self.missing else []),
            ]
        )


def evolve(
    mode: str,
    select: Struct,
    table: Struct | None,
    location: str,
    *,
    declared: Struct | None = None,
    partitions: Sequence[str] = (),
) -> Evolution:
    """Find the columns with which a table holds its own rows and those of a SELECT, unchanged.

    :param mode: "add" adds columns and fields; "widen" widens types as well, where Delta can.
    :param table: None if there is no table yet.
    :param declared: Columns that every SELECT must have, and whose types are these.
    :param partitions: Columns that stay as they are.
    :raises SchemaMismatchError: Names all columns that do not fit, with both types.
    """
    merging = _Merging(widens=mode == "widen", fixed={name.lower() for name in partitions})
    columns = merging.table(select, table, declared or Struct())
    if merging.problems:
        raise SchemaMismatchError(
            f"The SELECT does not fit the table {location}: " + "; ".join(merging.problems) + ".",
            kept=NO_ROW_WRITTEN,
            do=way_on(widen=merging.could_widen),
        )
    return Evolution(columns, tuple(merging.added), tuple(merging.widened), tuple(merging.missing))


@dataclass
class _Merging:
    """One comparison, and what it has found so far."""

    widens: bool
    fixed: set[str]
    problems: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    could_widen: bool = False

    def table(self, select: Struct, table: Struct | None, declared: Struct) -> Struct:
        self._unique("", select)
        wanted = self._as_declared(select, declared)
        if table is None:
            return Struct(tuple(Field(item.name, self._new(item.name, item.kind)) for item in wanted.fields))
        given = declared.by_name()
        found = wanted.by_name()
        after = []
        for item in table.fields:
            name = item.name.lower()
            if name not in found:
                self._missing(item.name, item, partitions=name in self.fixed)
                after.append(item)
                continue
            said = "as declared" if name in given else "in the SELECT"
            problems = len(self.problems)
            widens, self.widens = self.widens, self.widens and name not in self.fixed
            kind = self._kind(item.name, found[name].kind, item.kind, said)
            self.widens = widens
            if name in given and text(kind) != text(given[name].kind) and len(self.problems) == problems:
                self._differs(item.name, given[name].kind, item.kind, said)
            after.append(Field(item.name, kind, item.required))
        return Struct((*after, *self._added("", wanted, table)))

    def _as_declared(self, select: Struct, declared: Struct) -> Struct:
        """Put the declared columns first, with their types, and see that the SELECT has them."""
        found = select.by_name()
        for item in declared.fields:
            selected = found.get(item.name.lower())
            if selected is None:
                self.problems.append(f"{item.name} {text(item.kind)} is declared and missing in the SELECT")
            elif not keeps_values(text(selected.kind), text(item.kind)):
                self.problems.append(
                    f"{item.name} is {text(selected.kind)} in the SELECT and declared as {text(item.kind)}"
                )
        given = declared.by_name()
        return Struct((*declared.fields, *(item for item in select.fields if item.name.lower() not in given)))

    def _kind(self, path: str, select: Kind, table: Kind, said: str) -> Kind:
        match table, select:
            case _, "void":
                return table
            case "void", _:
                self.added.append(f"{path} {text(select)}")
                return self._new(path, select)
            case Struct(), Struct():
                return self._struct(path, select, table, said)
            case Array(), Array():
                return Array(self._kind(f"{path}.element", select.element, table.element, said))
            case Map(), Map():
                if text(select.key) != text(table.key):
                    self._differs(f"{path}.key", select.key, table.key, said)
                return Map(table.key, self._kind(f"{path}.value", select.value, table.value, said))
            case str(), str() if keeps_values(select, table):
                return table
            case str(), str() if found := wider(table, select):
                if self.widens:
                    self.widened.append(f"{path} from {table} to {found}")
                    return found
                self.could_widen = True
        self._differs(path, select, table, said)
        return table

    def _struct(self, path: str, select: Struct, table: Struct, said: str) -> Struct:
        self._unique(f"{path}.", select)
        found = select.by_name()
        after = []
        for item in table.fields:
            below = f"{path}.{item.name}"
            if item.name.lower() in found:
                kind = self._kind(below, found[item.name.lower()].kind, item.kind, said)
                after.append(Field(item.name, kind, item.required))
            else:
                self._missing(below, item)
                after.append(item)
        return Struct((*after, *self._added(f"{path}.", select, table)))

    def _missing(self, path: str, item: Field, *, partitions: bool = False) -> None:
        if partitions or item.required:
            why = "partitions the table" if partitions else "is NOT NULL in the table"
            self.problems.append(f"{path} {text(item.kind)} {why} and is missing in the SELECT")
        else:
            self.missing.append(path)

    def _added(self, prefix: str, select: Struct, table: Struct) -> list[Field]:
        known = table.by_name()
        new = [item for item in select.fields if item.name.lower() not in known]
        self.added += [f"{prefix}{item.name} {text(item.kind)}" for item in new]
        return [Field(item.name, self._new(f"{prefix}{item.name}", item.kind)) for item in new]

    def _new(self, path: str, kind: Kind, *, inside: bool = False) -> Kind:
        """See that Delta can store a type, and give it without NOT NULL."""
        match kind:
            case Struct():
                self._unique(f"{path}.", kind)
                return Struct(
                    tuple(
                        Field(item.name, self._new(f"{path}.{item.name}", item.kind, inside=True))
                        for item in kind.fields
                    )
                )
            case Array():
                return Array(self._new(f"{path}.element", kind.element, inside=True))
            case Map():
                key = self._new(f"{path}.key", kind.key, inside=True)
                return Map(key, self._new(f"{path}.value", kind.value, inside=True))
            case "void" if inside:
                self.problems.append(f"{path} has no type: it is NULL in all rows")
        return kind

    def _unique(self, prefix: str, select: Struct) -> None:
        seen: set[str] = set()
        for item in select.fields:
            if item.name.lower() in seen:
                self.problems.append(f"{prefix}{item.name} is selected twice")
            seen.add(item.name.lower())

    def _differs(self, path: str, select: Kind, table: Kind, said: str) -> None:
        self.problems.append(f"{path} is {text(select)} {said} and {text(table)} in the table")


def text(kind: Kind) -> str:
    """Give a type as Spark's ``simpleString`` does."""
    match kind:
        case Struct():
            return f"struct<{','.join(f'{item.name}:{text(item.kind)}' for item in kind.fields)}>"
        case Array():
            return f"array<{text(kind.element)}>"
        case Map():
            return f"map<{text(kind.key)},{text(kind.value)}>"
    return kind
