"""Which columns a batch has, when its files are not all of one shape, or not of the declared one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everybody uses

from airflow_provider_scope.core.schema import keeps_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.spark.footers import Shape

_DECLARE = (
    'declare it; or leave `columns` out and name the columns in the SELECT; or set extra_columns="ignore"'
)
_ALLOW = 'set missing_columns="null" if files may lack it; or leave `columns` out'
NO_TYPE = "declare a type that holds the values of all files; or leave `columns` out, and CAST in the SELECT"
"""What helps with files whose types cannot be held together."""

_MOST_DIGITS = 38
"""Of a decimal."""


def own_columns(shape: Shape) -> T.StructType:
    """Give the columns of a file, nanoseconds as the timestamps that they are."""
    return T.StructType(
        [
            T.StructField(field.name, _instant_or_not(shape.nanoseconds[field.name]))
            if field.name in shape.nanoseconds
            else field
            for field in shape.columns
        ]
    )


def _instant_or_not(is_instant: bool) -> T.DataType:
    return T.TimestampType() if is_instant else T.TimestampNTZType()


def merge(shapes: Sequence[Shape]) -> tuple[T.StructType, list[str]]:
    """Give the columns that hold those of all files, and what cannot be held together.

    A type widens where no value changes. The problems name files and types.
    """
    merged: dict[str, T.StructField] = {}
    first: dict[str, str] = {}
    problems = []
    for shape in shapes:
        path = shape.paths[0]
        problems += [
            f"{path}: {name} has nanoseconds inside another column" for name in shape.nested_nanoseconds
        ]
        for field in own_columns(shape):
            key = field.name.lower()
            known = merged.get(key)
            if known is None:
                merged[key], first[key] = field, path
                continue
            kind = common(known.dataType, field.dataType)
            if kind is None:
                problems.append(
                    f"{field.name} is {known.dataType.simpleString()} in {first[key]} and "
                    f"{field.dataType.simpleString()} in {path}"
                )
            else:
                merged[key] = T.StructField(known.name, kind)
    return T.StructType(list(merged.values())), problems


def differences(
    shape: Shape, declared: T.StructType, *, extra: bool = False, missing: bool = False
) -> list[tuple[str, str]]:
    """Give what keeps the files of a shape from being read as the declared columns, and what may help.

    :param extra: Whether columns that are not declared are left out.
    :param missing: Whether declared columns that the files lack are NULL.
    """
    own = {field.name.lower(): field for field in own_columns(shape)}
    wanted = {field.name.lower() for field in declared}
    found = [(f"{name} has nanoseconds inside another column", "") for name in shape.nested_nanoseconds]
    if not extra:
        further = [field.name for key, field in own.items() if key not in wanted]
        found += [(f"it has the column {name}, which is not declared", _DECLARE) for name in further]
    for field in declared:
        there = own.get(field.name.lower())
        if there is None:
            if not missing:
                found.append((f"it has no column {field.name}", _ALLOW))
        elif field.name in shape.nanoseconds and isinstance(field.dataType, T.LongType):
            continue  # declared as the number that it is in the file
        elif not _holds(there.dataType, field.dataType):
            own_kind, kind = there.dataType.simpleString(), field.dataType.simpleString()
            found.append((f"{field.name} is {own_kind}, declared is {kind}", NO_TYPE))
    return found


def _holds(kind: T.DataType, wanted: T.DataType) -> bool:
    return common(kind, wanted) == _bare(wanted)


def common(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """Give the type that holds all values of two types unchanged; None if there is none."""
    one, other = _bare(one), _bare(other)
    if one == other:
        return one
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        return _common_struct(one, other)
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        element = common(one.elementType, other.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(one, T.MapType) and isinstance(other, T.MapType):
        key, value = common(one.keyType, other.keyType), common(one.valueType, other.valueType)
        return None if key is None or value is None else T.MapType(key, value)
    if keeps_values(one.simpleString(), other.simpleString()):
        return other
    if keeps_values(other.simpleString(), one.simpleString()):
        return one
    if isinstance(one, T.DecimalType) and isinstance(other, T.DecimalType):
        scale = max(one.scale, other.scale)
        precision = scale + max(one.precision - one.scale, other.precision - other.scale)
        return T.DecimalType(precision, scale) if precision <= _MOST_DIGITS else None
    return None


def _common_struct(one: T.StructType, other: T.StructType) -> T.StructType | None:
    fields = {field.name.lower(): field for field in one}
    for field in other:
        key = field.name.lower()
        kind = common(fields[key].dataType, field.dataType) if key in fields else field.dataType
        if kind is None:
            return None
        fields[key] = T.StructField(fields[key].name if key in fields else field.name, kind)
    return T.StructType(list(fields.values()))


def _bare(kind: T.DataType) -> T.DataType:
    """Leave out what does not change values: whether NULL is allowed, comments, lengths of texts."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _bare(f.dataType)) for f in kind])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_bare(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(_bare(kind.keyType), _bare(kind.valueType))
    if isinstance(kind, (T.CharType, T.VarcharType)):
        return T.StringType()
    return kind
