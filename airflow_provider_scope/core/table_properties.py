"""Which declared properties a Delta table does not have: some of them are a part of its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_FEATURE = "delta.feature."
_VERSIONS = {
    "delta.minreaderversion": ("minReaderVersion", 3),
    "delta.minwriterversion": ("minWriterVersion", 7),
}
"""Property -> key of the protocol, and the version from which on a table lists its features.

Delta writes that one down only for a feature that needs it (measured with Delta 4: a table that was asked for
3 and 7 alone is at 1 and 1).
"""
_NOT_KEPT = frozenset({"delta.ignoreprotocoldefaults"})
"""Properties that count when a table is made, and are not kept."""
_LEGACY = {
    "appendonly": 2,
    "invariants": 2,
    "checkconstraints": 3,
    "changedatafeed": 4,
    "generatedcolumns": 4,
    "columnmapping": 5,
    "identitycolumns": 6,
}
"""Feature -> the writer version that has it without a list."""


def missing_properties(
    properties: Mapping[str, Any], configuration: Mapping[str, str], protocol: Mapping[str, Any]
) -> dict[str, Any]:
    """Give the declared properties that the table does not have, to be set.

    :param configuration: ``metaData.configuration`` of the table's log.
    :param protocol: ``protocol`` of the table's log.
    """
    there = {name.lower(): value for name, value in configuration.items()}
    return {
        name: value
        for name, value in properties.items()
        if not _has(name.lower(), str(value), there, protocol)
    }


def _has(name: str, value: str, there: Mapping[str, str], protocol: Mapping[str, Any]) -> bool:
    if name.startswith(_FEATURE):
        is_asked_for = value.lower() in ("supported", "enabled")
        return is_asked_for and _has_feature(name.removeprefix(_FEATURE), protocol)
    if name in _VERSIONS:
        key, with_features = _VERSIONS[name]
        return value.isdecimal() and (int(value) == with_features or int(value) <= int(protocol.get(key, 0)))
    return name in _NOT_KEPT or there.get(name) == value


def _has_feature(feature: str, protocol: Mapping[str, Any]) -> bool:
    key, with_features = _VERSIONS["delta.minwriterversion"]
    writer = int(protocol.get(key, 0))
    if writer < with_features:
        return writer >= _LEGACY.get(feature, with_features)
    listed = (*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ()))
    return feature in {name.lower() for name in listed}
