"""The examples of the checkpoint's files are their bytes, and every key has its row."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from airflow_provider_scope.protocol import derived, records, retention, takeover
from airflow_provider_scope.protocol import derived as store
from airflow_provider_scope.scope.jobs import MARKER_PROPERTY
from airflow_provider_scope.spark import plan
from airflow_provider_scope.stores.protocol import CONTROL_FILE_LIMIT_BYTES
from tests.docs.pages import DOCS, blocks, code, rows, section

PAGE = DOCS / "checkpoint_format.md"
EXAMPLES = {block.name: block.text for block in blocks(PAGE.read_text(), "json")}


def example(folder: str) -> tuple[str, bytes]:
    """Return name and bytes of the example of a folder's file."""
    others = (".settled", ".decided")
    ((name, text),) = [
        item for item in EXAMPLES.items() if item[0].startswith(folder) and not item[0].endswith(others)
    ]
    return name, text.encode()


def number(name: str) -> int:
    return int(name.rsplit("/", 1)[1])


def offset() -> records.OffsetEntry:
    name, data = example("offsets/")
    return records.decode_offset(name, data, number(name))


def commit() -> records.CommitRecord:
    name, data = example("commits/")
    return records.decode(records.CommitRecord, name, data, seq=number(name))


def acceptance() -> records.Acceptance:
    name, data = example("accepted/")
    return records.decode(records.Acceptance, name, data, number=number(name))


def attempt() -> records.Attempt:
    name, data = example("attempts/")
    seq, of_batch = map(int, name.removeprefix("attempts/").split("."))
    return records.decode(records.Attempt, name, data, seq=seq, number=of_batch)


def settlement() -> records.Settlement:
    name, data = settled_example()
    return records.decode(records.Settlement, name, data, seq=attempt().seq, number=attempt().number)


def settled_example() -> tuple[str, bytes]:
    name = f"{example('attempts/')[0]}.settled"
    return name, EXAMPLES[name].encode()


def quarantine_use() -> records.QuarantineUse:
    name, data = example("quarantines/")
    return records.decode(records.QuarantineUse, name, data, number=number(name))


def schema_version() -> records.SchemaVersion:
    name, data = example("schemas/")
    return records.decode(records.SchemaVersion, name, data, seq=number(name))


def vacuumed() -> records.Vacuumed:
    name, data = example("vacuumed/")
    return records.decode(records.Vacuumed, name, data, below=number(name))


def taken_over() -> takeover.Takeover:
    name, data = example("taken_over/")
    return records.decode(takeover.Takeover, name, data, number=number(name))


def pipeline() -> records.Pipeline:
    return records.decode(records.Pipeline, *example("pipeline.json"))


@pytest.mark.parametrize(
    ("folder", "decoded"),
    [
        ("pipeline.json", pipeline),
        ("commits/", commit),
        ("accepted/", acceptance),
        ("quarantines/", quarantine_use),
        ("schemas/", schema_version),
        ("vacuumed/", vacuumed),
        ("attempts/", attempt),
    ],
)
def test_the_example_of_a_record_is_its_bytes(folder, decoded):
    assert records.encode(decoded()) == example(folder)[1]


def test_the_example_of_a_decision_is_its_bytes_and_about_the_attempt():
    assert records.encode(settlement()) == settled_example()[1]
    assert attempt().seq == commit().seq


def test_the_examples_of_a_takeover_are_their_bytes_and_belong_together():
    taken = taken_over()
    decided = f"taken_over/{taken.watermark}.decided"
    decision = records.decode(
        takeover.Decision, decided, EXAMPLES[decided].encode(), watermark=taken.watermark
    )

    assert records.encode(taken) == example("taken_over/")[1]
    assert records.encode(decision) == EXAMPLES[decided].encode()


def test_the_property_that_marks_a_table_is_the_one_of_the_code():
    assert f"`{MARKER_PROPERTY}`" in section(PAGE, "## In the table")


def test_the_example_of_an_entry_is_its_bytes():
    assert records.encode_offset(offset()) == example("offsets/")[1]


def test_the_header_of_a_refresh_is_its_bytes():
    (header,) = [block.text for block in blocks(PAGE.read_text(), "text") if block.text.startswith("{")]
    file = '{"created":null,"modified":1,"path":"file:///data/landing/a","size":1}\n'

    entry = records.decode_offset("offsets/9", (header + file).encode(), 9)

    assert records.encode_offset(entry).decode() == header + file
    assert entry.overwrites_table


def test_the_example_of_a_plan_is_its_bytes():
    data = example("plans/")[1].removesuffix(b"\n")

    assert plan.encode(plan.decode(data)) == data


def test_the_examples_of_the_derived_files_follow_from_those_of_the_records():
    name, sources = example("sources/")

    assert (commit().files, commit().size_bytes) == (len(offset().files), offset().slice.size_bytes)
    batch_id = takeover.Epoch(offset().refresh_start).batch_id(offset().seq)
    assert number(name) == batch_id
    assert takeover.audit_lines(takeover.audit_rows(offset(), commit(), batch_id)) == sources.rstrip(b"\n")
    assert takeover.watermark(offset(), batch_id) == example("watermark.json")[1].removesuffix(b"\n")


def test_the_example_of_the_metadata_of_a_commit_names_the_batch_of_the_others():
    assert json.loads(EXAMPLES["userMetadata"]) == {
        "abandoned": False,
        "pipeline": pipeline().pipeline,
        "seq": commit().seq,
    }


@pytest.mark.parametrize(
    ("heading", "record"),
    [
        ("## pipeline.json", records.Pipeline),
        ("## commits/<20 digits>", records.CommitRecord),
        ("## accepted/<20 digits>", records.Acceptance),
        ("## quarantines/<20 digits>", records.QuarantineUse),
        ("## schemas/<20 digits>", records.SchemaVersion),
        ("## vacuumed/<20 digits>", records.Vacuumed),
        ("## attempts/<20 digits>.<k>", records.Attempt),
        ("## attempts/<20 digits>.<k>.settled", records.Settlement),
        ("## taken_over/<20 digits>", takeover.Takeover),
        ("## taken_over/<digest>.decided", takeover.Decision),
        ("## plans/<uuid>", plan.Plan),
    ],
)
def test_the_fields_of_a_record_are_documented(heading, record):
    documented = {code(row[0])[0]: row[2] for row in rows(section(PAGE, heading))}

    assert {key for key in documented if "." not in key} == {
        field.name for field in dataclasses.fields(record)
    }
    assert {key for key, text in documented.items() if "key is missing" in text} == {
        field.name for field in dataclasses.fields(record) if field.metadata.keys() & records.LEFT_OUT.keys()
    }


def test_the_fields_of_a_table_stamp_are_documented():
    documented = {code(row[0])[0] for row in rows(section(PAGE, "## pipeline.json"))}
    fields = {f"table.{field.name}" for field in dataclasses.fields(records.TableIdentity)}

    assert {key for key in documented if "." in key} == fields


def test_the_keys_of_an_entry_and_of_its_files_are_documented_in_their_order():
    header, file, *_ = example("offsets/")[1].splitlines()
    documented = [code(row[0])[0] for row in rows(section(PAGE, "## offsets/<20 digits>"))]

    assert documented == [*json.loads(header), *json.loads(file)]


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ("## sources/<batchId>", example("sources/")[1].splitlines()[0]),
        ("## watermark.json", example("watermark.json")[1]),
    ],
)
def test_the_keys_of_a_derived_file_are_documented_in_their_order(heading, line):
    documented = [code(row[0])[0] for row in rows(section(PAGE, heading))]

    assert documented == list(json.loads(line))


def test_the_columns_and_the_metadata_of_a_segment_are_documented():
    text = section(PAGE, "## seen/<epoch>/<first>-<last>-<rows>-<crc>.parquet")
    columns = [(code(row[0])[0], row[1]) for row in rows(text)]

    assert columns == [(field.name, str(field.type)) for field in derived.SCHEMA]
    assert f"`{store._EPOCH.decode()}`" in text
    assert f"{retention.MERGED_AT_MOST:,}" in text


def test_the_drawing_has_every_file_and_folder_of_the_table():
    top = PAGE.read_text().split("\n## ")[0]
    (drawing,) = blocks(top, "mermaid")
    files = [re.split(r"(?<=/)", code(row[0])[0])[0] for row in rows(top)]
    labels = re.findall(r'Files\["([^"]+)"\]', drawing.text)

    assert sorted(name for label in labels for name in label.split("<br/>")) == sorted({*files})


def test_the_drawing_of_a_batch_names_files_of_the_checkpoint():
    page = section(DOCS / "exactly_once.md", "## What each kind of crash leaves, and what the next run does")
    (drawing,) = blocks(page, "mermaid")
    known = [code(row[0])[0] for row in rows(PAGE.read_text().split("\n## ")[0])]
    named = re.findall(r"[\w]+/\d+|\w+\.json", drawing.text)

    assert named == ["offsets/8", "commits/8", "sources/8", "watermark.json"]
    assert {name.split("/")[0] for name in named} <= {name.split("/")[0] for name in known}


def test_the_limits_of_a_files_size_are_those_of_the_code():
    assert f"{CONTROL_FILE_LIMIT_BYTES:,} bytes" in section(PAGE, "## Rules for all files")
    assert f"{retention.MERGED_AT_MOST:,} rows" in section(PAGE, "## taken_over/<digest>.parquet")
