"""The schema of a table: how a SELECT's columns fit it, how it grows with them, which properties it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from airflow_provider_scope import validation
from airflow_provider_scope.columns import Columns, columns_from
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, SchemaMismatchError
from airflow_provider_scope.expectations import Expectation, rules_from

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


IDENTITY = "delta.identity.start"
COMPUTED = ("delta.generationExpression", IDENTITY, "CURRENT_DEFAULT")
"""Keys in the metadata of a column for which Delta computes the value if a row has none."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct."""

    name: str
    kind: Kind
    required: bool = False
    """Whether every row must have a value: the field is NOT NULL, and the table does not compute it."""
    number: int | None = None
    """Which field it is, whatever its name, in a table whose columns are mapped."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct; the columns of a table form one, too."""

    fields: tuple[Field, ...] = ()

    def by_name(self) -> dict[str, Field]:
        """Map the names in lower case, as Spark and Delta compare them, to the fields."""
        return {item.name.lower(): item for item in self.fields}


@dataclass(frozen=True, slots=True)
class Array:
    element: Kind


@dataclass(frozen=True, slots=True)
class Map:
    key: Kind
    value: Kind


Kind = str | Struct | Array | Map
"""A type; one without parts as Spark's ``simpleString`` gives it."""


def text(kind: Kind, named: Callable[[str], str] = str) -> str:
    """Write a type as Spark's ``simpleString`` does.

    :param named: Writes the name of a field; Spark reads it only if it is quoted.
    """
    match kind:
        case Struct():
            fields = (f"{named(item.name)}:{text(item.kind, named)}" for item in kind.fields)
            return f"struct<{','.join(fields)}>"
        case Array():
            return f"array<{text(kind.element, named)}>"
        case Map():
            return f"map<{text(kind.key, named)},{text(kind.value, named)}>"
    return kind


def names_in(kind: Kind) -> Iterator[str]:
    """Return the names of all fields, also inside of others."""
    match kind:
        case Struct():
            for item in kind.fields:
                yield item.name
                yield from names_in(item.kind)
        case Array():
            yield from names_in(kind.element)
        case Map():
            yield from names_in(kind.key)
            yield from names_in(kind.value)


_SPARK_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def of_delta(schema: Mapping[str, Any]) -> Struct:
    """Read the columns of a table, or the fields of a struct, as Delta's log has them."""
    return Struct(tuple(map(_field_of_delta, schema["fields"])))


def _field_of_delta(field: Mapping[str, Any]) -> Field:
    metadata = field.get("metadata") or {}
    required = not field.get("nullable", True) and not any(key in metadata for key in COMPUTED)
    return Field(field["name"], _of_delta(field["type"]), required, metadata.get("delta.columnMapping.id"))


def _of_delta(kind: Any) -> Kind:
    if isinstance(kind, str):
        return _SPARK_NAMES.get(kind, kind)
    match kind["type"]:
        case "array":
            return Array(_of_delta(kind["elementType"]))
        case "map":
            return Map(_of_delta(kind["keyType"]), _of_delta(kind["valueType"]))
    return of_delta(kind)


_WIDER = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
"""Conversions that keep every value exactly."""
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}

_WIDENS = {kind: tuple(target for target in targets if target != "float") for kind, targets in _WIDER.items()}
"""Types to which Delta widens a column without rewriting its files, besides decimals."""
_DECIMAL_FROM = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
"""Digits that a decimal needs before its point, so that Delta can widen a column of integers to it."""
MAX_DIGITS = 38
"""The most that a decimal has."""


def keeps_values(source: str, target: str) -> bool:
    """Whether a Spark type holds every value of another one."""
    if source in {target, "void"}:
        return True
    if target in _WIDER.get(source, ()):
        return True
    decimal = _decimal(target)
    if decimal is None:
        return False
    precision, scale = decimal
    if source in _DIGITS:
        return precision - scale >= _DIGITS[source]
    source_decimal = _decimal(source)
    return (
        source_decimal is not None
        and scale >= source_decimal[1]
        and precision - scale >= source_decimal[0] - source_decimal[1]
    )


def _fits(select: Kind, table: Kind) -> bool:
    """Whether a type holds every value of another one; the fields of structs are matched by their names."""
    match select, table:
        case Struct(), Struct():
            ours, theirs = select.by_name(), table.by_name()
            is_paired = len(ours) == len(select.fields) == len(table.fields) and ours.keys() == theirs.keys()
            return is_paired and all(_fits(ours[name].kind, theirs[name].kind) for name in ours)
        case Array(), Array():
            return _fits(select.element, table.element)
        case Map(), Map():
            return text(select.key) == text(table.key) and _fits(select.value, table.value)
    return keeps_values(text(select), text(table))


def _decimal(kind: str) -> tuple[int, int] | None:
    if not kind.startswith("decimal("):
        return None
    precision, _, scale = kind[len("decimal(") : -1].partition(",")
    return int(precision), int(scale or 0)


def wider(table: str, select: str) -> str | None:
    """Find the narrowest type that Delta can widen a column to, and that holds the SELECT's values."""
    for kind in _WIDENS.get(table, ()):
        if keeps_values(select, kind):
            return kind
    return _wider_decimal(table, select)


def _wider_decimal(table: str, select: str) -> str | None:
    table_decimal, select_decimal = _decimal(table), _decimal(select)
    if table_decimal is None and select_decimal is None:
        return None
    sizes = []
    for decimal, whole in ((table_decimal, _DECIMAL_FROM.get(table)), (select_decimal, _DIGITS.get(select))):
        if decimal is not None:
            sizes.append((decimal[0] - decimal[1], decimal[1]))
        elif whole is not None:
            sizes.append((whole, 0))
        else:
            return None
    before, after = (max(parts) for parts in zip(*sizes, strict=True))
    return f"decimal({before + after},{after})" if before + after <= MAX_DIGITS else None


@dataclass(frozen=True, slots=True)
class Evolution:
    """The columns of the table after a batch, and what is new in them."""

    columns: Struct
    added: tuple[str, ...] = ()
    """Paths with types of the columns and fields that the table lacked."""
    widened: tuple[str, ...] = ()
    """What is said of each column and field that gets a wider type."""
    missing: tuple[str, ...] = ()
    """Paths of columns and fields that the SELECT lacks."""

    @property
    def changes(self) -> bool:
        return bool(self.added or self.widened)

    def summary(self) -> str:
        """Describe the differences in a line; empty if the SELECT has the table's columns."""
        return "; ".join(
            [
                *([f"the table gets {', '.join(self.added)}"] if self.added else []),
                *self.widened,
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
    """Find the columns with which a table can hold its own rows and those of a SELECT, unchanged.

    Columns are matched by name, whatever the letter case.

    :param mode: "fail" lets the table as it is: the SELECT has to have its columns, and no others. "add" adds
        columns and fields; "widen" widens types as well, where Delta can.
    :param table: None if there is no table yet.
    :param declared: Columns that every SELECT must have, and whose types are these; not with "fail".
    :param partitions: Columns that stay as they are.
    :raises SchemaMismatchError: Names all columns that do not fit, with both types, and what would help.
    """
    comparison = _Comparison(widens=mode == "widen", fixed={name.lower() for name in partitions})
    comparison.check_unique("", select)
    if mode == "fail" and table is not None:
        columns = comparison.unchanged(select, table)
    else:
        columns = comparison.evolved(select, table, declared or Struct())
    if comparison.problems:
        raise SchemaMismatchError(
            f"The SELECT does not fit the table {location}: " + "; ".join(comparison.problems) + ".",
            kept=NO_ROW_WRITTEN,
            do=comparison.advice(),
        )
    return Evolution(columns, tuple(comparison.added), tuple(comparison.widened), tuple(comparison.missing))


@dataclass
class _Comparison:
    """A comparison of a SELECT with a table, and its results so far."""

    widens: bool
    fixed: set[str]
    problems: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    could_add: bool = False
    """Whether the table could take columns that do not fit."""
    could_widen: bool = False
    """Whether it could take types that do not fit, since they are wider."""
    could_lack: bool = False
    """Whether it could take rows that lack a column: NULL, or what the table computes."""

    def advice(self) -> str:
        mode = "widen" if self.could_widen else "add"
        changes = ["new columns"] * self.could_add + ["wider types"] * self.could_widen
        changes += ["rows without some of its columns"] * self.could_lack
        takes = f'; or let the table take {" and ".join(changes)} with TableSpec(schema_evolution="{mode}")'
        return (
            "change the SELECT (name each column; CAST where a conversion is meant), or the table"
            + (takes if changes else "")
            + "; the next run loads the batch with the correction"
        )

    def unchanged(self, select: Struct, table: Struct) -> Struct:
        selected, existing = select.by_name(), table.by_name()
        extra = [item for item in select.fields if item.name.lower() not in existing]
        self.could_add = bool(extra)
        self.problems += [f"{item.name} {text(item.kind)} is not a column of the table" for item in extra]
        for item in table.fields:
            column = selected.get(item.name.lower())
            if column is None:
                is_needed = item.required or item.name.lower() in self.fixed
                self.could_lack = self.could_lack or not is_needed
                self.problems.append(f"{item.name} {text(item.kind)} is missing in the SELECT")
            elif not _fits(column.kind, item.kind):
                self.could_widen = self.could_widen or wider(text(item.kind), text(column.kind)) is not None
                self._differs(item.name, column.kind, item.kind, "in the SELECT")
        return table

    def evolved(self, select: Struct, table: Struct | None, declared: Struct) -> Struct:
        expected = self._as_declared(select, declared)
        if table is None:
            return Struct(
                tuple(Field(item.name, self._new(item.name, item.kind)) for item in expected.fields)
            )
        return self._fields("", expected, table, declared=declared.by_name(), fixed=self.fixed)

    def _as_declared(self, select: Struct, declared: Struct) -> Struct:
        """Put the declared columns first, with their types; note those that the SELECT does not fit."""
        selected_by_name = select.by_name()
        for item in declared.fields:
            selected = selected_by_name.get(item.name.lower())
            if selected is None:
                self.problems.append(f"{item.name} {text(item.kind)} is declared and missing in the SELECT")
            elif not _fits(selected.kind, item.kind):
                self.problems.append(
                    f"{item.name} is {text(selected.kind)} in the SELECT and declared as {text(item.kind)}"
                )
        declared_names = declared.by_name()
        undeclared = (item for item in select.fields if item.name.lower() not in declared_names)
        return Struct((*declared.fields, *undeclared))

    def _kind(self, path: str, select: Kind, table: Kind, origin: str, *, can_widen: bool) -> Kind:
        match table, select:
            case _, "void":
                return table
            case "void", _:
                self.added.append(f"{path} {text(select)}")
                return self._new(path, select)
            case Struct(), Struct():
                self.check_unique(f"{path}.", select)
                return self._fields(f"{path}.", select, table, origin)
            case Array(), Array():
                inner = f"{path}.element", select.element, table.element
                return Array(self._kind(*inner, origin, can_widen=can_widen))
            case Map(), Map():
                if text(select.key) != text(table.key):
                    self._differs(f"{path}.key", select.key, table.key, origin)
                inner = f"{path}.value", select.value, table.value
                return Map(table.key, self._kind(*inner, origin, can_widen=can_widen))
            case str(), str() if keeps_values(select, table):
                return table
            case str(), str() if wider_kind := wider(table, select):
                if can_widen:
                    self.widened.append(f"{path} is widened from {table} to {wider_kind}")
                    return wider_kind
                self.could_widen = True
        self._differs(path, select, table, origin)
        return table

    def _fields(
        self,
        prefix: str,
        select: Struct,
        table: Struct,
        origin: str = "in the SELECT",
        *,
        declared: Mapping[str, Field] | None = None,
        fixed: Collection[str] = (),
    ) -> Struct:
        """Compare columns, or the fields of a struct: the table's, then those that are new."""
        selected, declared = select.by_name(), declared or {}
        fields = []
        for item in table.fields:
            name, path = item.name.lower(), f"{prefix}{item.name}"
            if name not in selected:
                self._lacks(path, item, partitions=name in fixed)
                fields.append(item)
                continue
            problem_count = len(self.problems)
            origin_of_field = "as declared" if name in declared else origin
            can_widen = self.widens and name not in fixed
            kind = self._kind(path, selected[name].kind, item.kind, origin_of_field, can_widen=can_widen)
            is_reported = len(self.problems) > problem_count
            if name in declared and text(kind) != text(declared[name].kind) and not is_reported:
                self._differs(path, declared[name].kind, item.kind, origin_of_field)
            fields.append(Field(item.name, kind, item.required))
        existing = table.by_name()
        new = [item for item in select.fields if item.name.lower() not in existing]
        self.added += [f"{prefix}{item.name} {text(item.kind)}" for item in new]
        fields += [Field(item.name, self._new(f"{prefix}{item.name}", item.kind)) for item in new]
        return Struct(tuple(fields))

    def _lacks(self, path: str, item: Field, *, partitions: bool = False) -> None:
        if partitions or item.required:
            why = "partitions the table" if partitions else "is NOT NULL in the table"
            self.problems.append(f"{path} {text(item.kind)} {why} and is missing in the SELECT")
        else:
            self.missing.append(path)

    def _new(self, path: str, kind: Kind, *, inside: bool = False) -> Kind:
        """Drop NOT NULL from a type; note a problem if Delta cannot store it."""
        match kind:
            case Struct():
                self.check_unique(f"{path}.", kind)
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

    def check_unique(self, prefix: str, select: Struct) -> None:
        names: set[str] = set()
        for item in select.fields:
            if item.name.lower() in names:
                self.problems.append(f"{prefix}{item.name} is selected twice")
            names.add(item.name.lower())

    def _differs(self, path: str, select: Kind, table: Kind, origin: str) -> None:
        self.problems.append(f"{path} is {text(select)} {origin} and {text(table)} in the table")


# ---- Declared properties: some of them become a part of the table's protocol ----

_FEATURE = "delta.feature."
_VERSIONS = {
    "delta.minreaderversion": ("minReaderVersion", 3),
    "delta.minwriterversion": ("minWriterVersion", 7),
}
"""Property -> key of the protocol, and the version from which on a table lists its features.

Delta writes that version down only for a feature that needs it (measured with Delta 4: a table that was asked
for 3 and 7 alone is at 1 and 1).
"""
_NOT_KEPT = frozenset({"delta.ignoreprotocoldefaults"})
"""Properties that have an effect when a table is made, and are not stored."""
_LEGACY = {
    "appendonly": 2,
    "invariants": 2,
    "checkconstraints": 3,
    "changedatafeed": 4,
    "generatedcolumns": 4,
    "columnmapping": 5,
    "identitycolumns": 6,
}
"""Feature -> the first writer version that includes it, without a list of features."""


def missing_properties(
    properties: Mapping[str, Any], configuration: Mapping[str, str], protocol: Mapping[str, Any]
) -> dict[str, Any]:
    """Find the declared properties that the table does not have yet.

    :param configuration: ``metaData.configuration`` of the table's log.
    :param protocol: ``protocol`` of the table's log.
    """
    existing = {name.lower(): value for name, value in configuration.items()}
    return {
        name: value
        for name, value in properties.items()
        if not _has(name.lower(), str(value), existing, protocol)
    }


def _has(name: str, value: str, existing: Mapping[str, str], protocol: Mapping[str, Any]) -> bool:
    if name.startswith(_FEATURE):
        is_asked_for = value.lower() in ("supported", "enabled")
        return is_asked_for and _has_feature(name.removeprefix(_FEATURE), protocol)
    if name in _VERSIONS:
        key, with_features = _VERSIONS[name]
        return value.isdecimal() and (int(value) == with_features or int(value) <= int(protocol.get(key, 0)))
    return name in _NOT_KEPT or existing.get(name) == value


def _has_feature(feature: str, protocol: Mapping[str, Any]) -> bool:
    key, with_features = _VERSIONS["delta.minwriterversion"]
    writer = int(protocol.get(key, 0))
    if writer < with_features:
        return writer >= _LEGACY.get(feature, with_features)
    listed = (*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ()))
    return feature in {name.lower() for name in listed}


# ---- the table as users write it ----


_RULE = re.compile(r"\w[\w .-]{0,99}")
"""The name of a rule: it stands in messages."""


@validation.checked
@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The table, where the SELECT alone does not say it.

    :param columns: Column name -> Spark type, in the order of the table; or a list or text, as in
        ``FileSource``. None takes the columns of the SELECT when the table is created, and those of the
        table afterwards.
    :param partition_by: Names of columns of the SELECT; they may be computed there.
    :param properties: Table properties, such as ``{"delta.enableChangeDataFeed": "true"}``.
    :param schema_evolution: What happens with columns and types that the table does not have: "fail", or
        "add" columns, or "widen" types as well.
    :param expect: Name of a rule -> SQL predicate over the columns of the SELECT, or an ``Expectation``. A
        batch with a row for which it is not true (NULL is not) is not committed; with
        ``FileSource(bad_records="quarantine")`` such rows are quarantined.
    :param quarantine: Folder of the Delta table for what is quarantined, on the store of the table. None is
        the table's own folder with ``_quarantine`` appended to its name.
    :raises InputError: A value is not valid.
    """

    columns: Annotated[Columns, columns_from] | None = None
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    schema_evolution: Literal["fail", "add", "widen"] = "fail"
    expect: Annotated[Mapping[str, str | Expectation], rules_from] | None = None
    quarantine: str | None = None

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        self._check_expect()
        self._check_columns()
        self._check_properties()

    def _check_columns(self) -> None:
        if isinstance(self.columns, Mapping):
            if not self.columns:
                raise validation.bad("columns", self.columns, "at least one column, or None")
            lower = {str(name).lower() for name in self.columns}
            for name in () if validation.is_deferred(self.partition_by) else self.partition_by:
                if not validation.is_deferred(name) and name.lower() not in lower:
                    raise validation.bad(
                        "partition_by", name, f"one of the columns {', '.join(self.columns)}"
                    )

    def _check_properties(self) -> None:
        if isinstance(self.properties, Mapping):
            for name, value in self.properties.items():
                if name.lower() == "delta.settransactionretentionduration":
                    raise validation.bad(
                        "properties",
                        name,
                        "properties that keep transaction identifiers",
                        "leave it out: a table that forgets them can load a batch twice",
                    )
                if (
                    name.lower() == "delta.enabletypewidening"
                    and self.schema_evolution == "widen"
                    and not validation.is_deferred(value)
                    and value != "true"
                ):
                    raise validation.bad(
                        f"properties[{name!r}]",
                        value,
                        "'true' with schema_evolution='widen'",
                        "leave it out: it is set when the first column is widened",
                    )

    def _check_expect(self) -> None:
        if not isinstance(self.expect, Mapping):
            return
        if not self.expect:
            raise validation.bad("expect", self.expect, "at least one rule, or None")
        for name in self.expect:
            if not validation.is_deferred(name) and not _RULE.fullmatch(name):
                raise validation.bad(
                    "expect", name, "names of at most 100 letters, digits, spaces, '_', '-' and '.'"
                )


def narrowed(old: Kind, new: Kind, path: str = "", *, takes_wider: bool = False) -> str | None:
    """Say in which column a type lacks what another one has; None if it has all of it.

    :param takes_wider: Whether a wider type has all of it, too.
    """
    match old, new:
        case Struct(), Struct():
            new_fields = new.by_name()
            for field in old.fields:
                name = f"{path}.{field.name}" if path else field.name
                if field.name.lower() not in new_fields:
                    return f"drops or renames the column {name!r}"
                kind = new_fields[field.name.lower()].kind
                if difference := narrowed(field.kind, kind, name, takes_wider=takes_wider):
                    return difference
            return None
        case Array(), Array():
            return narrowed(old.element, new.element, path, takes_wider=takes_wider)
        case Map(), Map():
            parts = ((old.key, new.key), (old.value, new.value))
            return next(filter(None, (narrowed(*p, path, takes_wider=takes_wider) for p in parts)), None)
        case str(), str() if takes_wider and wider(old, new) == new:
            return None
    return None if old == new else f"changes the type of {path!r} from {text(old)} to {text(new)}"
