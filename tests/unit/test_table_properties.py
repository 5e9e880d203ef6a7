"""Which of the declared properties a table does not have yet."""

from __future__ import annotations

import pytest

from airflow_provider_scope.delta.schema import missing_properties

LEGACY = {"minReaderVersion": 1, "minWriterVersion": 2}
FEATURES = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "appendOnly", "domainMetadata"],
}


@pytest.mark.parametrize(
    ("properties", "configuration", "protocol", "missing"),
    [
        ({"team": "me"}, {}, LEGACY, ["team"]),
        ({"team": "me"}, {"team": "you"}, LEGACY, ["team"]),
        ({"team": "me"}, {"Team": "me"}, LEGACY, []),
        ({"delta.checkpointInterval": 5}, {"delta.checkpointInterval": "5"}, LEGACY, []),
        # These become a part of the protocol, and no properties.
        ({"delta.feature.deletionVectors": "supported"}, {}, FEATURES, []),
        ({"delta.feature.DELETIONVECTORS": "enabled"}, {}, FEATURES, []),
        ({"delta.feature.domainMetadata": "supported"}, {}, FEATURES, []),
        ({"delta.feature.deletionVectors": "supported"}, {}, LEGACY, ["delta.feature.deletionVectors"]),
        ({"delta.feature.rowTracking": "supported"}, {}, FEATURES, ["delta.feature.rowTracking"]),
        # Delta says what is wrong with it.
        ({"delta.feature.deletionVectors": "maybe"}, {}, FEATURES, ["delta.feature.deletionVectors"]),
        # What came before features is a part of each version.
        ({"delta.feature.appendOnly": "supported"}, {}, LEGACY, []),
        ({"delta.feature.changeDataFeed": "supported"}, {}, LEGACY, ["delta.feature.changeDataFeed"]),
        ({"delta.feature.changeDataFeed": "supported"}, {}, {**LEGACY, "minWriterVersion": 4}, []),
        ({"delta.feature.changeDataFeed": "supported"}, {}, FEATURES, ["delta.feature.changeDataFeed"]),
        ({"delta.minReaderVersion": "1", "delta.minWriterVersion": "2"}, {}, LEGACY, []),
        ({"delta.minReaderVersion": "1", "delta.MinWriterVersion": 5}, {}, FEATURES, []),
        ({"delta.minWriterVersion": "5"}, {}, LEGACY, ["delta.minWriterVersion"]),
        ({"delta.minReaderVersion": "2"}, {}, LEGACY, ["delta.minReaderVersion"]),
        ({"delta.minReaderVersion": "3", "delta.minWriterVersion": "7"}, {}, LEGACY, []),
        ({"delta.minWriterVersion": "8"}, {}, FEATURES, ["delta.minWriterVersion"]),
        ({"delta.minWriterVersion": "new"}, {}, LEGACY, ["delta.minWriterVersion"]),
        # It is for the making of a table, and is not kept.
        ({"delta.ignoreProtocolDefaults": "true"}, {}, LEGACY, []),
    ],
)
def test_a_property_is_missing_until_the_table_has_it_in_its_own_form(
    properties, configuration, protocol, missing
):
    assert list(missing_properties(properties, configuration, protocol)) == missing
