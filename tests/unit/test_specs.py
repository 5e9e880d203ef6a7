"""What users write, as specs or as dicts."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_scope import specs, validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.specs import (
    CdfSource,
    Checkpoint,
    Cursor,
    Expectation,
    FileSource,
    JdbcSource,
    Replace,
    SparkEngine,
    TableSource,
    TableSpec,
)
from airflow_provider_scope.specs.write import write_from
from tests.support.values import XCOM

TEMPLATE = "{{ params.x }}"
BLOCK = "{% if params.x %}a{% endif %}"
NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - the mistake that is refused
RETENTION = "delta.setTransactionRetentionDuration"
KEYS = (
    "roots, patterns, format, columns, schema_hints, partition_columns, options, options_by_pattern, "
    "max_files_per_trigger, "
    "max_bytes_per_trigger, "
    "safety_buffer_seconds, starting_timestamp, late_files, on_changed_file, extra_columns, missing_columns, "
    "rescued_data_column, bad_records, max_bad_records, max_bad_share, fail_on_empty"
)
SOURCE = f"FileSource(…) or a dict with the keys {KEYS}"

# ---- arguments that are wrong -----------------------------------------------------------------------

TEXTS = "a list of texts"
TEXT = "text that is not empty"
NEEDED_WHOLE = "a whole number, at least 1"
WHOLE = "a whole number, at least 1, or None"
ZONE = "a time with its zone, such as '2026-01-01T00:00:00+00:00'"
MAPPING = "a mapping with text keys"
PAIR = "columns as [name, type] or {'name': …, 'type': …}"

FORMATS = "one of 'sstream', 'parquet', 'csv', 'json', 'text', 'orc', 'avro'"
EVOLUTIONS = "one of 'fail', 'add', 'widen'"
RULE = "names of at most 100 letters, digits, spaces, '_', '-' and '.'"
BUFFER = "a number (int or float), at least 0, or None"

BAD: list[tuple[type[Any], str, Any, str, str]] = [
    # class, argument, value, what the message shows of it, what it expects
    (FileSource, "roots", [], "roots=[]", "at least one"),
    (FileSource, "roots", None, "roots=None", TEXTS),
    (FileSource, "roots", "", "roots=''", TEXT),
    (FileSource, "roots", ["/in", " "], "roots=' '", TEXT),
    (FileSource, "roots", Path("/in"), "roots=PosixPath('/in')", TEXTS),
    (FileSource, "roots", [Path("/in")], "roots=PosixPath('/in')", TEXT),
    (FileSource, "patterns", [], "patterns=[]", "at least one"),
    (FileSource, "format", "xlsx", "format='xlsx'", FORMATS),
    (FileSource, "format", None, "format=None", FORMATS),
    (FileSource, "columns", ["a"], "columns='a'", PAIR),
    (FileSource, "columns", {1: "int"}, "columns={1: 'int'}", MAPPING),
    (FileSource, "columns", {}, "columns={}", "at least one column, or None to take the files' own"),
    (FileSource, "columns", {"a": ""}, "columns['a']=''", TEXT),
    (FileSource, "columns", {"a": int}, "columns['a']=<class 'int'>", TEXT),
    (FileSource, "max_files_per_trigger", 0, "max_files_per_trigger=0", WHOLE),
    (FileSource, "max_files_per_trigger", "many", "max_files_per_trigger='many'", WHOLE),
    (FileSource, "max_files_per_trigger", True, "max_files_per_trigger=True", WHOLE),
    (FileSource, "max_files_per_trigger", "1.5", "max_files_per_trigger='1.5'", WHOLE),
    (FileSource, "max_bytes_per_trigger", 1e9, "max_bytes_per_trigger=1000000000.0", WHOLE),
    (FileSource, "safety_buffer_seconds", -0.5, "safety_buffer_seconds=-0.5", BUFFER),
    (FileSource, "safety_buffer_seconds", "soon", "safety_buffer_seconds='soon'", BUFFER),
    (FileSource, "safety_buffer_seconds", float("nan"), "safety_buffer_seconds=nan", BUFFER),
    (FileSource, "safety_buffer_seconds", "nan", "safety_buffer_seconds='nan'", BUFFER),
    (FileSource, "safety_buffer_seconds", float("inf"), "safety_buffer_seconds=inf", BUFFER),
    (FileSource, "safety_buffer_seconds", False, "safety_buffer_seconds=False", BUFFER),
    (FileSource, "starting_timestamp", "yesterday", "starting_timestamp='yesterday'", ZONE),
    (FileSource, "starting_timestamp", "2026-01-01", "starting_timestamp='2026-01-01'", ZONE),
    (FileSource, "starting_timestamp", NAIVE, "starting_timestamp=datetime.datetime(2026, 1, 1, 0, 0)", ZONE),
    (
        FileSource,
        "starting_timestamp",
        date(2026, 1, 1),
        "starting_timestamp=datetime.date(2026, 1, 1)",
        ZONE,
    ),
    (FileSource, "starting_timestamp", "", "starting_timestamp=''", ZONE),
    (FileSource, "on_changed_file", "warn", "on_changed_file='warn'", "one of 'ignore', 'fail', 'reload'"),
    (TableSpec, "columns", {}, "columns={}", "at least one column, or None"),
    (TableSpec, "columns", ["ab"], "columns='ab'", PAIR),
    (TableSpec, "columns", {"a": 5}, "columns['a']=5", TEXT),
    (TableSpec, "schema_evolution", "grow", "schema_evolution='grow'", EVOLUTIONS),
    (TableSpec, "expect", "id IS NOT NULL", "expect='id IS NOT NULL'", MAPPING),
    (TableSpec, "expect", {}, "expect={}", "at least one rule, or None"),
    (TableSpec, "expect", {1: "true"}, "expect={1: 'true'}", MAPPING),
    (TableSpec, "expect", {"": "true"}, "expect=''", RULE),
    (TableSpec, "expect", {" id": "true"}, "expect=' id'", RULE),
    (TableSpec, "expect", {"a\nb": "true"}, "expect='a\\nb'", RULE),
    (TableSpec, "expect", {"it's": "true"}, 'expect="it\'s"', RULE),
    (TableSpec, "expect", {"x" * 101: "true"}, f"expect='{'x' * 101}'", RULE),
    (TableSpec, "expect", {"has id": " "}, "expect['has id']=' '", TEXT),
    (TableSpec, "expect", {"has id": True}, "expect['has id']=True", TEXT),
    (Replace, "where", True, "where=True", TEXT),
    (SparkEngine, "conf", [("a", "b")], "conf=[('a', 'b')]", MAPPING),
    (SparkEngine, "jars", True, "jars=True", TEXTS),
    (Checkpoint, "location", Path("/c"), "location=PosixPath('/c')", TEXT),
    (Checkpoint, "compaction_interval", 0, "compaction_interval=0", NEEDED_WHOLE),
    (Checkpoint, "compaction_interval", None, "compaction_interval=None", NEEDED_WHOLE),
    (Checkpoint, "retention_files", "all", "retention_files='all'", NEEDED_WHOLE),
]
CURSOR = {"column": "a"}
NEEDED: dict[type[Any], dict[str, Any]] = {
    FileSource: {"roots": ["/in"]},
    TableSource: {"table": "/t", "cursor": CURSOR},
    JdbcSource: {"conn_id": "c", "table": "t", "cursor": CURSOR},
    CdfSource: {"table": "/t"},
    Cursor: CURSOR,
    Expectation: {"predicate": "a > 0"},
}
BESIDE: dict[tuple[type[Any], str], dict[str, Any]] = {
    (JdbcSource, "query"): {"table": None},
    (JdbcSource, "partition_column"): {"num_partitions": 2},
    (Cursor, "end_value"): {"initial_value": 1},
}
"""What a field goes with."""
FIELDS = [
    (getattr(specs, name), field.name)
    for name in specs.__all__
    if dataclasses.is_dataclass(getattr(specs, name))
    for field in dataclasses.fields(getattr(specs, name))
]


@pytest.mark.parametrize(("cls", "argument"), FIELDS)
def test_every_field_refuses_a_value_of_no_kind_that_it_takes(cls: type[Any], argument: str) -> None:
    with pytest.raises(InputError, match=rf"^{argument}=<object object at"):
        cls(**{**NEEDED.get(cls, {}), argument: object()})


@pytest.mark.parametrize(("cls", "argument", "value", "shown", "expected"), BAD)
def test_a_wrong_argument_is_refused_with_its_value_and_what_was_expected(
    cls: type[Any], argument: str, value: Any, shown: str, expected: str
) -> None:
    arguments = {**NEEDED.get(cls, {}), argument: value}

    with pytest.raises(InputError) as from_spec:
        cls(**arguments)
    with pytest.raises(InputError) as from_dict:
        validation.from_dict(cls, "x", arguments)

    assert from_spec.value.what == f"{shown} is not valid: expected {expected}."
    assert from_spec.value.do == "correct the argument in the DAG file"
    assert from_spec.value.kept == "everything; nothing was read or written"
    assert str(from_dict.value) == str(from_spec.value)


@pytest.mark.parametrize(
    ("cls", "arguments", "what", "do"),
    [
        (
            FileSource,
            {"roots": ["/in"], "patterns": "*.csv"},
            "patterns='*.csv' is not valid: expected a regular expression (nothing to repeat at position 0).",
            r"regular expressions are searched in the file's name; for *.csv write r'.*\.csv$'",
        ),
        (
            FileSource,
            {"roots": ["/in"], "columns": {"Source_File_URI": "string"}},
            "columns='Source_File_URI' is not valid: expected names other than the virtual columns.",
            "leave Source_File_URI out: every file has it, name it in `sql`",
        ),
        (
            TableSpec,
            {"properties": {RETENTION: "interval 1 day"}},
            f"properties={RETENTION!r} is not valid: expected properties that keep transaction identifiers.",
            "leave it out: a table that forgets them can load a batch twice",
        ),
        (
            TableSpec,
            {"properties": {"delta.EnableTypeWidening": "false"}, "schema_evolution": "widen"},
            (
                "properties['delta.EnableTypeWidening']='false' is not valid: expected 'true' with "
                "schema_evolution='widen'."
            ),
            "leave it out: it is set when the first column is widened",
        ),
    ],
)
def test_some_mistakes_are_answered_with_what_to_write(
    cls: type[Any], arguments: dict[str, Any], what: str, do: str
) -> None:
    with pytest.raises(InputError) as caught:
        validation.from_dict(cls, "x", arguments)

    assert (caught.value.what, caught.value.do) == (what, do)


def test_partitions_must_be_among_the_columns_that_are_named() -> None:
    with pytest.raises(InputError) as caught:
        TableSpec(columns={"id": "int", "day": "date"}, partition_by=["DAY", "month"])

    assert caught.value.what == "partition_by='month' is not valid: expected one of the columns id, day."


def test_packages_and_jars_exclude_each_other() -> None:
    with pytest.raises(InputError) as caught:
        SparkEngine(packages=["a:b:1"], jars=["/x.jar"])

    assert caught.value.what == "jars=('/x.jar',) is not valid: expected None when packages are named."
    assert caught.value.do == "name one of the two"
    assert SparkEngine(packages=[], jars=["/x.jar"]).jars == ("/x.jar",)


# ---- dicts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (FileSource, {"roots": ["/in"]}),
        (
            FileSource,
            {
                "roots": ("/in", "file:///more"),
                "patterns": [r"\.csv$"],
                "format": "csv",
                "columns": {"a": "int"},
                "options": {"header": "true"},
                "max_files_per_trigger": 50,
                "max_bytes_per_trigger": None,
                "safety_buffer_seconds": 0,
                "starting_timestamp": "2026-01-01T00:00:00Z",
                "late_files": "skip",
                "on_changed_file": "fail",
            },
        ),
        (TableSpec, {}),
        (
            TableSpec,
            {"columns": {"a": "int"}, "partition_by": ["a"], "properties": {"delta.appendOnly": "true"}},
        ),
        (
            TableSpec,
            {
                "schema_evolution": "widen",
                "expect": {"z-Größe": "size > 0", "a.b c": "x IS NOT NULL"},
            },
        ),
        (Replace, {"where": "day = '2026-01-01'"}),
        (SparkEngine, {"spark_conn_id": "spark", "conf": {"a": "b"}, "packages": []}),
        (SparkEngine, {"jars": ["/x.jar"]}),
        (Checkpoint, {"location": "/c", "compaction_interval": 5, "retention_files": 7}),
    ],
)
def test_a_dict_is_the_same_as_a_spec(cls: type[Any], arguments: dict[str, Any]) -> None:
    spec = cls(**arguments)

    assert validation.from_dict(cls, "x", arguments) == spec
    assert validation.from_dict(cls, "x", spec) is spec
    assert validation.from_dict(cls, "x", validation.to_dict(spec)) == spec


def test_a_spec_as_a_dict_holds_what_differs_from_the_defaults() -> None:
    spec = FileSource(roots="/in", patterns=[TEMPLATE], max_files_per_trigger=5)

    assert validation.to_dict(spec) == {"roots": ["/in"], "patterns": [TEMPLATE], "max_files_per_trigger": 5}
    assert validation.to_dict({"roots": XCOM}) == {"roots": XCOM}


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Checkpoint().location = "/c"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "what", "do"),
    [
        pytest.param(
            {"roots": ["/in"], "pattern": "x", "fromat": "csv"},
            f"source has unknown keys: fromat, pattern. FileSource has {KEYS}.",
            "write 'format' for 'fromat', 'patterns' for 'pattern'",
            id="unknown keys",
        ),
        pytest.param(
            {"roots": ["/in"], 7: "x"},
            f"source has unknown keys: 7. FileSource has {KEYS}.",
            "correct the spelling in the DAG file",
            id="a key that is no text",
        ),
        pytest.param({}, "source needs roots.", "add it: source={'roots': …}", id="missing"),
        pytest.param(
            "/in",
            f"source='/in' is not valid: expected {SOURCE}.",
            "correct the argument in the DAG file",
            id="text",
        ),
        pytest.param(
            Replace(),
            f"source=Replace(where=None) is not valid: expected {SOURCE}.",
            "correct the argument in the DAG file",
            id="another spec",
        ),
    ],
)
def test_a_dict_that_is_no_spec_is_refused_with_the_keys_there_are(value: Any, what: str, do: str) -> None:
    with pytest.raises(InputError) as caught:
        validation.from_dict(FileSource, "source", value)

    assert (caught.value.what, caught.value.do) == (what, do)


# ---- values that are taken --------------------------------------------------------------------------


def test_one_text_is_a_list_of_it() -> None:
    source = FileSource(roots="/in", patterns=r"\.csv$")
    with_quotes = FileSource(roots="/in", patterns="['\"]a['\"]")  # no text of a list

    assert (source.roots, source.patterns) == (("/in",), (r"\.csv$",))
    assert with_quotes.patterns == ("['\"]a['\"]",)
    assert TableSpec(partition_by="day").partition_by == ("day",)
    assert SparkEngine(jars="/x.jar").jars == ("/x.jar",)


def test_numbers_that_a_template_rendered_to_text_are_numbers() -> None:
    source = FileSource(
        roots="/in", max_files_per_trigger="50", max_bytes_per_trigger="1000", safety_buffer_seconds="1.5"
    )  # type: ignore[arg-type]

    assert (source.max_files_per_trigger, source.max_bytes_per_trigger) == (50, 1_000)
    assert source.safety_buffer_seconds == 1.5
    assert Checkpoint(compaction_interval="5").compaction_interval == 5  # type: ignore[arg-type]


def test_no_safety_buffer_is_zero_and_none_is_the_default() -> None:
    assert FileSource(roots="/in", safety_buffer_seconds=0).safety_buffer_seconds == 0
    assert FileSource(roots="/in", safety_buffer_seconds=None).safety_buffer_seconds == 30  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (TEMPLATE, None),
        (XCOM, None),
        ("1970-01-01T00:00:00Z", 0),
        (" 1970-01-01T00:00:00Z\n", 0),
        ("2026-01-01T00:00:00+00:00", 1_767_225_600_000),
        ("2026-01-01T02:00:00+02:00", 1_767_225_600_000),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000),
        (datetime(2026, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))), 1_767_225_600_000),
        # Float arithmetic makes 1077467621079 of it.
        ("2004-02-22T16:33:41.080+00:00", 1_077_467_621_080),
        ("2026-01-01T00:00:00.999999+00:00", 1_767_225_600_999),
        ("1969-12-31T23:59:59.999+00:00", -1),
    ],
)
def test_the_starting_time_is_exact_to_the_millisecond(value: Any, expected: int | None) -> None:
    assert validation.instant_ms("starting_timestamp", value) == expected


# ---- templates and XComArgs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (TEMPLATE, True),
        (BLOCK, True),
        ("a{{ x }}b", True),
        (XCOM, True),
        ("{ x }", False),
        ("", False),
        (None, False),
        (7, False),
        ({"a": TEMPLATE}, False),
        ([TEMPLATE], False),
        (Path("/in"), False),
    ],
)
def test_a_value_is_deferred_if_only_the_task_knows_it(value: Any, expected: bool) -> None:
    assert validation.is_deferred(value) is expected


def test_a_rendered_text_that_looks_like_a_template_is_one_folder_and_one_pattern() -> None:
    source = FileSource(roots="/data/a{#b", patterns="x{#")

    assert source.folders == ("/data/a{#b",)
    assert source.name_patterns == ("x{#",)


@pytest.mark.parametrize("value", [TEMPLATE, BLOCK, XCOM], ids=["template", "block", "XComArg"])
@pytest.mark.parametrize(("cls", "argument"), FIELDS)
def test_every_argument_may_be_a_template_or_an_xcomarg(cls: type[Any], argument: str, value: Any) -> None:
    spec = cls(**{**NEEDED.get(cls, {}), **BESIDE.get((cls, argument), {}), argument: value})

    assert getattr(spec, argument) in (value, (value,))


@pytest.mark.parametrize("value", [TEMPLATE, XCOM], ids=["template", "XComArg"])
def test_parts_of_arguments_may_be_templates_or_xcomargs(value: Any) -> None:
    source = FileSource(roots=["/in", value], patterns=[value], columns={"a": value}, options={"sep": value})
    table = TableSpec(
        columns={"a": value}, partition_by=[value], properties={"p": value}, expect={"r": value}
    )

    assert (source.roots, source.patterns, source.columns) == (("/in", value), (value,), {"a": value})
    assert (table.columns, table.partition_by) == ({"a": value}, (value,))


def test_the_other_values_are_checked_beside_a_template() -> None:
    with pytest.raises(InputError, match="patterns='\\['"):
        FileSource(roots=[TEMPLATE], patterns=[TEMPLATE, "["])
    with pytest.raises(InputError, match="partition_by='b'"):
        TableSpec(columns={"a": TEMPLATE}, partition_by=[TEMPLATE, "b"])


# ---- how rows are written ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("append", "append"),
        ("replace", Replace()),
        (Replace(where="x = 1"), Replace(where="x = 1")),
        ({"kind": "replace", "where": "x = 1"}, Replace(where="x = 1")),
        ({"kind": "replace"}, Replace()),
    ],
)
def test_the_ways_to_write(value: Any, expected: Any) -> None:
    assert write_from(value) == expected


@pytest.mark.parametrize("value", ["merge", "APPEND", "", None, 7, ["append"], Checkpoint()])
def test_another_way_to_write_is_refused(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        write_from(value)

    assert caught.value.what == (
        f"write={value!r} is not valid: expected 'append', 'replace', Replace(where=…), Merge(…) or Scd2(…)."
    )


@pytest.mark.parametrize(
    ("spec", "fields", "do"),
    [
        (FileSource, {"roots": "/in", "pattern": "x"}, "write 'patterns' for 'pattern'"),
        (Checkpoint, {"zzz": "/c"}, "correct the spelling in the DAG file"),
    ],
)
def test_a_field_that_a_spec_does_not_have_is_refused_with_the_one_that_may_be_meant(
    spec: Any, fields: dict[str, Any], do: str
) -> None:
    with pytest.raises(InputError, match=f"{spec.__name__} has no field {[*fields][-1]}") as caught:
        spec(**fields)

    assert caught.value.do == do


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": {"D": "int"}}, "names other than those of the files' columns"),
        (
            {"format": "csv", "columns": "infer", "schema_hints": {"d": "int"}},
            "names other than those of the files' columns",
        ),
        ({"partition_columns": {}}, "at least one column"),
        ({"partition_columns": {"source_file_uri": "string"}}, "virtual columns"),
    ],
)
def test_columns_of_paths_are_no_columns_of_the_files(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        FileSource(**{"roots": "/in", "format": "json", "partition_columns": {"d": "date"}, **changes})


CSV_FILES = {"roots": "/in", "format": "csv", "columns": "a int, b decimal(9,2)"}
FORMS = {"_de": {"sep": ";"}, "_us": {}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rescued_data_column": "A"}, "a name that no other column has"),
        ({"rescued_data_column": "source_file_uri"}, "a name that no other column has"),
        ({"rescued_data_column": "_r", "partition_columns": "_r int"}, "a name that no other column has"),
        ({"rescued_data_column": "_r", "columns": "_file_path string"}, "None with a column _file_path"),
        ({"rescued_data_column": "_r", "columns": None}, "declare `columns`, or set columns='infer'"),
        ({"rescued_data_column": "_r", "extra_columns": "ignore"}, "leave extra_columns out"),
        *(
            ({"rescued_data_column": "_r", "format": kind}, "it is for CSV, JSON, parquet and Avro files")
            for kind in ("orc", "text", "sstream")
        ),
        *(
            (
                {"rescued_data_column": "_r", "format": "json", "options": options},
                "from files in UTF-8 with one object on a line",
            )
            for options in ({"multiLine": "true"}, {"encoding": "latin1"}, {"allowComments": "true"})
        ),
    ],
)
def test_what_rescued_data_do_not_go_with_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        FileSource(**{**CSV_FILES, **changes})

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"skipRows": "0", "header": "true"}}, "a whole number, at least 1"),
        ({"options": {"skiprows": "2"}}, "set header='true'"),
        ({"options": {"skip_rows": "2", "header": "true"}}, "write 'skipRows'"),
        ({"options": {"delimeter": ";"}}, "write 'delimiter'"),
        ({"options": {"footer": "("}}, "a regular expression"),
        ({"options": {"footer": "x"}, "columns": "infer"}, "declare `columns`"),
        ({"options": {"footer": "x"}, "rescued_data_column": "_r"}, "leave one of the two out"),
        ({"options": {"decimalSeparator": ";"}}, "expected '.' or ','"),
        ({"options": {"thousandsSeparator": "."}}, "set decimalSeparator, too"),
        ({"options": {"footer": "x"}, "format": "json"}, "it is for CSV files"),
        ({"options_by_pattern": FORMS, "format": "json"}, "it is for CSV files"),
        ({"options_by_pattern": FORMS, "columns": None}, "declare `columns`"),
        ({"options_by_pattern": {"(": {}}}, "a regular expression"),
        ({"options_by_pattern": {"_de": ";"}}, "a mapping"),
        ({"options_by_pattern": {"_de": {"mode": "DROPMALFORMED"}}}, "rows that do not parse would vanish"),
        ({"options_by_pattern": {"_de": {"sepp": ";"}}}, "write 'sep'"),
        (
            {"options_by_pattern": {"_de": {"skipRows": "1"}}, "options": {"header": "false"}},
            "set header='true'",
        ),
        ({"options": {"charset": "utf_16le"}}, "set multiLine='true'"),
        ({"options": {"unescapedQuoteHandling": "skip_value"}}, "a stray quote would be NULL"),
        ({"format": "xml"}, "from_xml"),
        (
            {"format": "text", "columns": None, "options": {"Encoding": "ISO-8859-1"}},
            "write the files in UTF-8",
        ),
        ({"format": "text", "columns": {"n": "int"}}, "one column, a string"),
        ({"format": "text", "columns": "n string, m string"}, "one column, a string"),
    ],
)
def test_options_of_csv_files_that_are_not_certain_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        FileSource(**{**CSV_FILES, **changes})

    assert words in str(caught.value)


def test_options_that_are_true_or_false_are_those_of_spark() -> None:
    forms = {"_de": {"multiLine": True}, "_us": {}}
    source = FileSource(**CSV_FILES, options={"header": True, "skipRows": 1}, options_by_pattern=forms)

    assert source.options_of("a_de.csv")[1] == {"header": "true", "skiprows": 1, "multiline": "true"}


def test_a_file_has_the_options_of_the_one_pattern_that_it_matches() -> None:
    source = FileSource(**CSV_FILES, options={"Header": "true", "sep": ","}, options_by_pattern=FORMS)

    assert source.options_of("/in/_us/a_de.csv") == ("_de", {"header": "true", "sep": ";"})
    assert source.options_of("/in/a_us.csv") == ("_us", {"header": "true", "sep": ","})
    for name in ("/in/_de/a.csv", "/in/_us_de.csv"):
        with pytest.raises(InputError, match=name):
            source.options_of(name)
