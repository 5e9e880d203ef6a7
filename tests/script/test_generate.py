"""The script of a batch: its exact text, what it refuses, and how many files it can name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_scope.emulator.parse import (
    AddColumn,
    AlterTable,
    Assign,
    Column,
    CreateTable,
    DeclareConstant,
    Extract,
    Insert,
    parse,
)
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.scope.engine import Scripts
from airflow_provider_scope.scope.jobs import BatchIdentity, identity_of_marker
from airflow_provider_scope.scope.script import (
    files_that_fit,
    generate,
    generate_void,
)
from airflow_provider_scope.specs import ScopeEngine
from airflow_provider_scope.specs.ingest import ingest_from
from airflow_provider_scope.values import FileEntry
from tests.script.values import IDENTITY, batch
from tests.support.values import arguments

APPEND = """\
// airflow-provider-scope batch
// pipeline: "7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10"
// seq: 4
// attempt: 1
// mode: append
// files: 2, estimated bytes: 2560
//            bytes  file
//             2048  "adl://store.azuredatalakestore.net/landing/a.ss"
//              512  "adl://store.azuredatalakestore.net/landing/b.ss"

SET @@FeaturePreviews = "EnableDeltaTableDynamicInsert:on";
SET @@DeltaLakeCommitCondition = "FailIfFileConflict";
SET @@MaxFileCountPerOutputFileSet = 5000;

#DECLARE @deltaPath string = "abfss://lake@account.dfs.core.windows.net/delta/flights";

CREATE TABLE IF NOT EXISTS @target
(
    id long,
    name string,
    source_file_uri string
)
PARTITIONED BY (name)
LOCATION @deltaPath
OPTIONS (LAYOUT = DELTA);

ALTER TABLE @target
SET TBLPROPERTIES
(
    "adlaScope.batch" = "7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10:4:1"
);

@data =
EXTRACT
    id : long,
    name : string,
    source_file_uri = FILE.URI(),
    source_file_length = FILE.LENGTH(),
    source_file_created = FILE.CREATED(),
    source_file_modified = FILE.MODIFIED()
FROM
    "adl://store.azuredatalakestore.net/landing/a.ss",
    "adl://store.azuredatalakestore.net/landing/b.ss"
USING Extractors.SStream();

@batch_data =
SELECT id, name, source_file_uri FROM @data;

INSERT INTO @target (id, name, source_file_uri)
SELECT
    id,
    name,
    source_file_uri
FROM @batch_data;

ALTER TABLE @target
SET TBLPROPERTIES
(
    "adlaScope.batch" = "7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10:4:1:done"
);
"""

REFRESH = """\
// airflow-provider-scope batch
// pipeline: "7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10"
// seq: 9
// attempt: 2
// mode: overwrite
// files: 1, estimated bytes: 7
//            bytes  file
//                7  "/landing/it is \\"quoted\\" \\u00fc.ss"

SET @@FeaturePreviews = "A:on,B:off";
SET @@DeltaLakeCommitCondition = "FailIfPartitionConflict";
SET @@MaxFileCountPerOutputFileSet = 8;
SET @@Strict = true;
SET @@Ratio = 0.5;
SET @@Note = "a\\nb";

#DECLARE @deltaPath string = "abfss://lake@account.dfs.core.windows.net/delta/flights";

CREATE TABLE IF NOT EXISTS @target
(
    [flight id] int?,
    [int] SQL.MAP<string,long?>
)
LOCATION @deltaPath
OPTIONS (LAYOUT = DELTA);

ALTER TABLE @target
SET TBLPROPERTIES
(
    "delta.enableChangeDataFeed" = "true",
    "delta.checkpointInterval" = 10,
    "adlaScope.batch" = "7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10:9:2"
);

DECLARE TABLE @target_rw
LOCATION @deltaPath
OPTIONS (LAYOUT = DELTA);

DELETE FROM @target_rw WHERE true;

@data =
EXTRACT
    raw : byte[],
    source_file_length = FILE.LENGTH()
FROM
    "/landing/it is \\"quoted\\" \\u00fc.ss"
USING Extractors.SStream();

@batch_data =
SELECT 1 AS [flight id] FROM @data;

INSERT INTO @target ([flight id], [int])
SELECT
    [flight id],
    [int]
FROM @batch_data;

ALTER TABLE @target
SET TBLPROPERTIES
(
    "adlaScope.batch" = "7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10:9:2:done"
);
"""

REFRESH_BATCH = batch(
    identity=BatchIdentity("7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10", 9, 2),
    sql="// comment\n  SELECT 1 AS [flight id] FROM @data ;; // done",
    files=(FileEntry(1, '/landing/it is "quoted" ü.ss', 7),),
    table_columns={"flight id": " int ?", "int": "SqlMap<string, long?>"},
    extract_columns={"raw": "byte[]"},
    virtual_columns=("source_file_length",),
    partition_by=(),
    properties={"delta.enableChangeDataFeed": True, "delta.checkpointInterval": 10},
    overwrite=True,
    feature_previews=("A:on", "B:off"),
    settings={
        "DeltaLakeCommitCondition": "FailIfPartitionConflict",
        "maxFileCountPerOutputFileSet": 8,
        "Strict": True,
        "Ratio": 0.5,
        "Note": "a\nb",
    },
)


def test_an_append_has_exactly_this_text():
    assert generate(batch()) == APPEND


def test_the_first_batch_of_a_refresh_has_exactly_this_text():
    assert generate(REFRESH_BATCH) == REFRESH


def test_columns_that_the_table_does_not_have_are_added_after_the_mark_and_before_the_rows():
    script = generate(batch(new_columns=("source_file_uri",)))
    statements = parse(script)
    kinds = [type(statement) for statement in statements]
    assert kinds[4:] == [CreateTable, AlterTable, AddColumn, Extract, Assign, Insert, AlterTable]
    column = Column("source_file_uri", "string")
    assert statements[6] == AddColumn("target", column)
    assert "ALTER TABLE @target\nADD COLUMN IF NOT EXISTS source_file_uri string;\n" in script


def test_the_table_property_names_the_attempt():
    assert identity_of_marker(IDENTITY.marker) == IDENTITY
    assert identity_of_marker(IDENTITY.closing_marker) == IDENTITY
    assert identity_of_marker("a:b:1:2") == BatchIdentity("a:b", 1, 2)
    assert identity_of_marker("somebody else's") is None


def test_a_number_of_a_template_is_a_number():
    text = generate(batch(settings={"maxFileCountPerOutputFileSet": "7"}))
    assert "SET @@MaxFileCountPerOutputFileSet = 7;\n" in text


def test_a_void_script_changes_nothing_and_names_its_attempt():
    script = generate_void(IDENTITY)
    assert parse(script) == [DeclareConstant("void", "7d3f2c1e-0a52-5b0c-9f5e-3b1f6f1f2a10:4:1")]


def test_the_table_of_files_in_the_header_is_capped():
    files = tuple(FileEntry(1, f"/in/{number}.ss", 1) for number in range(25))
    comments = generate(batch(files=files)).split("\n\n")[0]
    assert comments.splitlines()[-2:] == [
        '//                1  "/in/19.ss"',
        "//              ...  and 5 more",
    ]


def test_files_fit_up_to_the_limit_and_not_one_byte_more():
    files = tuple(FileEntry(1, f"/in/{number}.ss", 10**number) for number in range(40))
    whole = batch(files=files)
    for count in (1, 19, 20, 21, 40):
        exact = len(generate(replace(whole, files=files[:count])))
        assert files_that_fit(whole, exact) == count
        assert files_that_fit(whole, exact - 1) == count - 1


def test_no_file_fits_when_the_select_alone_is_too_long():
    assert files_that_fit(batch(), 100) == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"files": ()}, "files=()"),
        ({"files": (FileEntry(1, "/a", 1), FileEntry(2, "/a", 1))}, "files='/a'"),
        ({"files": (FileEntry(1, "/a/{x}.ss", 1),)}, "files='/a/{x}.ss'"),
        ({"files": (FileEntry(1, "/a/*.ss", 1),)}, "files='/a/*.ss'"),
        ({"files": (FileEntry(1, "/a/\udcff.ss", 1),)}, r"files='/a/\udcff.ss'"),
        ({"files": (FileEntry(1, "", 1),)}, "files=''"),
        ({"table_columns": {}}, "table_columns={}"),
        ({"table_columns": {"a": "int", "A": "int"}}, "table_columns='A'"),
        ({"table_columns": {"a]; DROP": "int"}}, "table_columns='a]; DROP'"),
        ({"table_columns": {" a": "int"}}, "table_columns=' a'"),
        ({"table_columns": {"a\u2028b": "int"}}, r"table_columns='a\u2028b'"),
        ({"table_columns": {"name": "int); DROP"}}, "'int); DROP' is not a SCOPE type"),
        ({"table_columns": {"name": "string?"}}, "'string?' is not a SCOPE type"),
        ({"extract_columns": {"a": "varchar"}}, "'varchar' is not a SCOPE type"),
        ({"extract_columns": {"Source_File_URI": "string"}}, "columns of the files='source_file_uri'"),
        ({"partition_by": ("day",)}, "partition_by='day'"),
        ({"partition_by": ("name", "name")}, "partition_by='name'"),
        ({"properties": {"k": None}}, "properties['k']=None"),
        ({"properties": {"adlascope.BATCH": "x"}}, "properties='adlaScope.batch'"),
        ({"settings": {"A = 1; SET @@B": 1}}, "settings='A = 1; SET @@B'"),
        ({"settings": {"a\n": 1}}, r"settings='a\n'"),
        ({"settings": {"A": float("inf")}}, "settings['A']=inf"),
        ({"settings": {"A": 2**63}}, "settings['A']=9223372036854775808"),
        ({"settings": {"featurepreviews": "x"}}, "settings='featurepreviews'"),
        ({"settings": {"DeltaLakeCommitCondition": "Auto"}}, "settings['DeltaLakeCommitCondition']='Auto'"),
        ({"settings": {"maxFileCountPerOutputFileSet": 0}}, "settings['MaxFileCountPerOutputFileSet']=0"),
        (
            {"settings": {"MaxFileCountPerOutputFileSet": 2_000_000}},
            "settings['MaxFileCountPerOutputFileSet']=2000000",
        ),
        (
            {"settings": {"MaxFileCountPerOutputFileSet": True}},
            "settings['MaxFileCountPerOutputFileSet']=True",
        ),
        ({"identity": BatchIdentity('p"\nSET', 1, 1)}, "pipeline="),
        ({"identity": BatchIdentity("p", -1, 1)}, "seq=-1"),
        ({"identity": BatchIdentity("p", 1, attempt=True)}, "attempt=True"),
    ],
)
def test_a_value_that_cannot_be_quoted_is_refused_by_name(changes, named):
    with pytest.raises(InputError) as caught:
        generate(batch(**{"partition_by": ()} | changes))
    assert caught.value.what.startswith(named)


@pytest.mark.parametrize(
    "part", ["[", "]", '"', "'", ";", "#", "@@", "//", "/*", "*/", "\n", "\x85", "\u200b"]
)
def test_a_name_with_a_sign_of_the_language_is_refused(part):
    with pytest.raises(InputError, match=r"^table_columns="):
        generate(batch(table_columns={f"a{part}b": "int"}, partition_by=()))


def test_a_virtual_column_of_the_table_is_not_looked_for_in_the_files():
    made = batch(table_columns={"a": "int", "Source_File_Length": "long?"}, partition_by=())
    assert "EXTRACT\n    a : int,\n    source_file_uri = FILE.URI()," in generate(made)


def test_text_that_a_submitter_would_fill_in_is_taken_apart():
    script = generate(batch(properties={"k": "@@date@@"}))
    assert '"k" = "@\\u0040date@\\u0040"' in script
    assert ("k", "@@date@@") in parse(script)[5].properties


def test_columns_of_files_and_table_stand_in_the_order_in_which_they_are_declared():
    """SCOPE reads text files by position, as Spark does."""
    ingest = ingest_from(
        arguments(
            source={"roots": "/in", "format": "csv", "columns": "id bigint, name string, city string"},
            sql="SELECT name, id, city FROM @data",
            table={"columns": [["name", "string"], ["id", "bigint"], ["city", "string"]]},
            engine={"scope_conn_id": "adla_scope_default"},
        )
    )
    assert ingest
    assert isinstance(ingest.engine, ScopeEngine)

    script = generate(
        Scripts(ingest, ingest.engine, (), lambda: None).batch(IDENTITY, batch().files, overwrite=False)
    )

    parts = {type(statement): statement for statement in parse(script)}
    assert [column.name for column in parts[Extract].columns] == ["id", "name", "city"]
    assert [column.name for column in parts[CreateTable].columns] == ["name", "id", "city"]
