"""The schema in the header of an Avro file: Spark's types of its columns, and the schema to read it with."""

from __future__ import annotations

import functools
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.spark.structs import repeated_names

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_KEPT = frozenset(
    {"type", "name", "namespace", "fields", "items", "values", "symbols", "size"}
    | {"logicalType", "precision", "scale"}
)
"""The keys of a schema that say what its values are."""
_JAVA_STRING = "avro.java.string"
"""Where a schema has it, Java decodes the bytes of a text, and loses those that are not UTF-8."""
_SPARK_TYPE = "spark.sql.catalyst.type"
"""Where a schema has it, Spark wrote a number that stands for a value of this type."""
_PRIMITIVES = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "string": T.StringType(),
    "bytes": T.BinaryType(),
}
_LOGICAL: Mapping[tuple[Any, Any], T.DataType] = {
    ("int", "date"): T.DateType(),
    ("long", "timestamp-millis"): T.TimestampType(),
    ("long", "timestamp-micros"): T.TimestampType(),
    ("long", "local-timestamp-millis"): T.TimestampNTZType(),
    ("long", "local-timestamp-micros"): T.TimestampNTZType(),
}
_NANOSECONDS = {"timestamp-nanos": True, "local-timestamp-nanos": False}
"""Logical type -> whether it is an instant. Spark gives its number."""
_LACKED = {
    ("int", "time-millis"): "a time of day",
    ("long", "time-micros"): "a time of day",
    ("fixed", "duration"): "a duration",
    ("bytes", "big-decimal"): "a decimal of any scale",
    ("long", "custom-decimal"): "a decimal that is written as a long",
    **{("long", name): "nanoseconds inside another column" for name in _NANOSECONDS},
}
"""Logical types that Spark lacks: it would give the number or the bytes that stand for a value."""
_SPARK_2_NAME = "topLevelRecord"
_VERSION_KEY, _HIVE_KEYS = "org.apache.spark.version", "writer."
_LONGEST, _LONG_BYTES = 38, 8


class AvroColumns(NamedTuple):
    stored: T.StructType
    """As the file has them; nanoseconds are whole numbers."""
    as_read: T.StructType
    """As Spark gives them with ``reader_schema``."""
    nanoseconds: dict[str, bool]
    """Columns of nanoseconds: whether they are instants (else wall-clock times)."""
    unknown: dict[str, str]
    """Columns that Spark cannot read, or not exactly, and why; they are in no other field."""
    reader_schema: str
    """The schema to read the file with; empty: its own."""


class _LackedError(Exception):
    """Spark lacks a type; the message says why."""


def canonical(text: str | None) -> str:
    """Write a schema without what does not change values: two files with the same text are read alike.

    :raises ValueError: It is no schema of records with fields.
    """
    schema = _stripped(json.loads(text or "null"), _KEPT | {_JAVA_STRING, _SPARK_TYPE})
    if not isinstance(schema, dict) or schema.get("type") != "record" or not schema.get("fields"):
        msg = "its schema is not one of records with fields"
        raise ValueError(msg)
    text = json.dumps(schema, sort_keys=True)
    try:
        columns_of(text)
    except (AttributeError, LookupError, TypeError) as err:
        msg = f"its schema is not one of Avro's: {err}"
        raise ValueError(msg) from err
    return text


def is_calendar_known(schema: str, keys: Collection[str]) -> bool:
    """Return whether old dates are of the Gregorian calendar, as Avro wants it.

    Spark 2 and Hive wrote others. Newer versions of Spark say so, which Spark itself looks at.

    :param schema: As ``canonical`` writes it.
    :param keys: The names of what else the header says.
    """
    is_of_hive = any(key.startswith(_HIVE_KEYS) for key in keys)
    is_of_spark = json.loads(schema)["name"] == _SPARK_2_NAME
    return not is_of_hive and (_VERSION_KEY in keys or not is_of_spark)


@functools.lru_cache(maxsize=64)
def columns_of(text: str) -> AvroColumns:
    """Find the columns of a file.

    :param text: Its schema, as ``canonical`` writes it.
    """
    schema = json.loads(text)
    reader_schema = _widened(_stripped(schema, _KEPT | {_SPARK_TYPE}))
    stored, nanoseconds, unknown = _columns(schema)
    types_read = {field.name: field for field in _columns(reader_schema)[0]}
    as_read = T.StructType([types_read[name] for name in stored.names])
    is_changed = reader_schema != schema
    return AvroColumns(stored, as_read, nanoseconds, unknown, json.dumps(reader_schema) if is_changed else "")


def _stripped(schema: Any, keys: Collection[str]) -> Any:
    if isinstance(schema, dict):
        return {key: _stripped(value, keys) for key, value in schema.items() if key in keys}
    return [_stripped(part, keys) for part in schema] if isinstance(schema, list) else schema


def _widened(schema: Any) -> Any:
    """Let decimals have all digits that their bytes may hold.

    Of a decimal with up to 18 digits, Spark takes the last eight bytes of a value whatever comes before them.
    """
    if isinstance(schema, list):
        return [_widened(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "decimal" and _most_digits(schema) > _most_digits({"size": _LONG_BYTES}):
        return {**schema, "precision": _most_digits(schema)}
    return {key: _widened(value) for key, value in schema.items()}


def _most_digits(schema: Mapping[str, Any]) -> int:
    """Return how many digits a decimal can have in its bytes, as Avro counts them."""
    size = schema.get("size")
    return _LONGEST if size is None else min(_LONGEST, math.floor(math.log10(2) * (8 * size - 1)))


def _columns(schema: Mapping[str, Any]) -> tuple[T.StructType, dict[str, bool], dict[str, str]]:
    """Find the columns, those of nanoseconds, and those that Spark cannot read."""
    columns, nanoseconds, unknown = T.StructType(), dict[str, bool](), dict[str, str]()
    types = _Types()
    root, space = types.define(schema, ""), types.space_of(schema, "")
    alike = repeated_names([field["name"] for field in schema["fields"]])
    for field in schema["fields"]:
        name, kind = field["name"], _without_null(field["type"])
        logical = kind.get("logicalType") if isinstance(kind, dict) and kind["type"] == "long" else None
        try:
            if logical in _NANOSECONDS:
                nanoseconds[name] = _NANOSECONDS[logical]
                column: T.DataType = T.LongType()
            else:
                types.around = [root]
                column = types.of(field["type"], space)
        except _LackedError as err:
            unknown[name] = str(err)
        else:
            columns = columns.add(name, column)
        if name in alike:
            unknown[name] = f"the names {', '.join(alike)} differ in letter case alone"
    return T.StructType([f for f in columns if f.name not in unknown]), nanoseconds, unknown


def _without_null(schema: Any) -> Any:
    kinds = [kind for kind in schema if kind != "null"] if isinstance(schema, list) else [schema]
    return kinds[0] if len(kinds) == 1 else kinds


class _Types:
    """The types of one schema, in which a name stands for what was defined before it."""

    def __init__(self) -> None:
        self.defined: dict[str, tuple[Mapping[str, Any], str]] = {}
        """Full name -> the definition, and the namespace around it."""
        self.around: list[str] = []
        """The full names of the records around the type that is looked at."""

    def define(self, schema: Mapping[str, Any], space: str) -> str:
        own_space, name = self.space_of(schema, space), schema["name"].rpartition(".")[2]
        full_name = f"{own_space}.{name}" if own_space else name
        self.defined[full_name] = (schema, space)
        return full_name

    @staticmethod
    def space_of(schema: Mapping[str, Any], space: str) -> str:
        """Return the namespace inside a named type.

        :param space: The one around it.
        """
        outer, point, _ = str(schema["name"]).rpartition(".")
        return outer if point else str(schema.get("namespace", space))

    def of(self, schema: Any, space: str) -> T.DataType:
        """Find Spark's type that holds the values of a type exactly.

        :raises _LackedError: There is none; it says why.
        """
        if isinstance(schema, list):
            return self._union(schema, space)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            if schema == "null":
                raise _LackedError("it holds nothing but null")
            names = [schema] if "." in schema or not space else [f"{space}.{schema}", schema]
            definition, outer = self.defined[next((name for name in names if name in self.defined), schema)]
            return self._defined(definition, outer)
        if not isinstance(schema["type"], str):
            return self.of(schema["type"], space)
        if "name" in schema:
            self.define(schema, space)
            return self._defined(schema, space)
        return self._unnamed(schema, space)

    def _union(self, schema: list[Any], space: str) -> T.DataType:
        kind = _without_null(schema)
        if not isinstance(kind, list):
            return self.of(kind, space)
        if not kind:
            raise _LackedError("it holds nothing but null")
        plain = {part["type"] if [*part] == ["type"] else "" for part in kind if isinstance(part, dict)}
        plain |= {part for part in kind if isinstance(part, str)}
        for narrow, wide in (("int", "long"), ("float", "double")):
            if plain == {narrow, wide}:
                return _PRIMITIVES[wide]
        names = [part if isinstance(part, str) else part.get("name", part["type"]) for part in kind]
        raise _LackedError(f"Spark has no unions, and it is one of {', '.join(map(str, names))}")

    def _unnamed(self, schema: Mapping[str, Any], space: str) -> T.DataType:
        if schema["type"] == "array":
            return T.ArrayType(self.of(schema["items"], space))
        if schema["type"] == "map":
            return T.MapType(T.StringType(), self.of(schema["values"], space))
        return _logical(schema) or self.of(schema["type"], space)

    def _defined(self, schema: Mapping[str, Any], space: str) -> T.DataType:
        if schema["type"] == "enum":
            return T.StringType()
        if schema["type"] == "fixed":
            return _logical(schema) or T.BinaryType()
        full_name = self.define(schema, space)
        if full_name in self.around:
            raise _LackedError(f"Spark has no types that hold themselves, as {full_name} does")
        names = [field["name"] for field in schema["fields"]]
        if alike := repeated_names(names):
            raise _LackedError(f"the names {', '.join(alike)} inside differ in letter case alone")
        if not names:
            raise _LackedError("it has a record without fields")
        self.around.append(full_name)
        inner = self.space_of(schema, space)
        struct = T.StructType(
            [T.StructField(field["name"], self.of(field["type"], inner)) for field in schema["fields"]]
        )
        self.around.pop()
        return struct


def _logical(schema: Mapping[str, Any]) -> T.DataType | None:
    """Find Spark's type for a logical type; None if it is none that Avro defines for this type.

    :raises _LackedError: Spark lacks it.
    """
    if _SPARK_TYPE in schema:
        raise _LackedError(f"a value of Spark's type {schema[_SPARK_TYPE]}")
    kind = schema["type"], schema.get("logicalType")
    if kind in _LACKED:
        raise _LackedError(_LACKED[kind])
    if kind not in {("bytes", "decimal"), ("fixed", "decimal")}:
        return _LOGICAL.get(kind)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        precision = 0
    if not 0 < precision <= _most_digits(schema):
        raise _LackedError(f"a decimal of {schema.get('precision')} digits with {scale} after the point")
    return T.DecimalType(precision, scale)
