"""The pages of reference name every argument, field, default, setting and reason as the code does."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from typing import Any, get_args

import pytest

from airflow_provider_scope import specs
from airflow_provider_scope.engines import application
from airflow_provider_scope.engines.spark import ApplicationEvents
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.protocol.report import BatchReport, RunReport
from airflow_provider_scope.protocol.seen import Reason, Tally
from airflow_provider_scope.sources.files.spec import MAX_FILES_ON_SPARK, REFUSED, FileFormat
from airflow_provider_scope.spark.settings import EXACT, EXACT_AT_START
from airflow_provider_scope.specs import capabilities
from airflow_provider_scope.specs.ingest import Mode
from airflow_provider_scope.values import TEXT_FORMATS, FileEntry, VersionSlice, usual_pattern
from tests.docs.pages import DOCS, blocks, code, rows, section
from tests.support.values import a_commit, an_entry

OPERATOR = DOCS / "operator.md"
FILES = DOCS / "files.md"
SPARK = DOCS / "spark.md"
LANDING = "file:///data/landing"


def default_of(cell: str) -> Any:
    return inspect.Parameter.empty if cell == "required" else ast.literal_eval(cell.strip("`"))


def fields_of(spec: str) -> list[list[str]]:
    """Return the table of a spec's fields: it stands on one page."""
    found = [
        (page, f"{level} Fields of {spec}")
        for page in DOCS.glob("*.md")
        for level in re.findall(rf"^(#+) Fields of {spec}$", page.read_text(), re.MULTILINE)
    ]
    assert len(found) == 1, f"Fields of {spec}: {found}"
    return rows(section(*found[0]))


def test_the_arguments_are_documented_in_order_with_their_defaults():
    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

    parameters = inspect.signature(inspect.unwrap(DeltaIncrementalIngestOperator.__init__)).parameters
    table = rows(section(OPERATOR, "## Arguments"))
    documented = {code(row[0])[0]: row[1] for row in table}

    assert list(documented) == [name for name in parameters if name not in ("self", "kwargs")]
    assert documented.pop("deferrable") == "`[operators] default_deferrable`"
    assert {name: default_of(cell) for name, cell in documented.items()} == {
        name: parameters[name].default for name in documented
    }


def test_the_arguments_of_the_operator_for_scripts_are_documented_in_order_with_their_defaults():
    from airflow_provider_scope.operators.scope_submit import ScopeSubmitJobOperator

    parameters = inspect.signature(inspect.unwrap(ScopeSubmitJobOperator.__init__)).parameters
    page = section(DOCS / "scope.md", "## ScopeSubmitJobOperator")
    table = rows(page)
    documented = {code(row[0])[0]: row[1] for row in table if row[0].startswith("`")}

    assert list(documented) == [name for name in parameters if name not in ("self", "kwargs")]
    assert documented.pop("deferrable") == "`[operators] default_deferrable`"
    assert {name: default_of(cell) for name, cell in documented.items()} == {
        name: parameters[name].default for name in documented
    }
    rest = re.search(r"All but (.*) may hold templates", page)
    assert rest
    assert {*parameters} - {*code(rest[1]), "self", "kwargs"} == {*ScopeSubmitJobOperator.template_fields}


@pytest.mark.parametrize(
    "name", [name for name in specs.__all__ if dataclasses.is_dataclass(getattr(specs, name))]
)
def test_the_fields_of_a_spec_are_documented_in_order_with_their_defaults(name):
    fields = [
        (field.name, inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(getattr(specs, name))
    ]

    assert [(code(row[0])[0], default_of(row[1])) for row in fields_of(name)] == fields


def test_the_number_of_files_in_a_batch_is_the_one_of_the_code():
    (row,) = [row for row in fields_of("FileSource") if row[0] == "`max_files_per_trigger`"]

    assert f"`None` is {MAX_FILES_ON_SPARK:,}." in row[3]


def test_the_arguments_that_are_templates_are_named():
    from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator

    first = re.split(r"\.\s", section(OPERATOR, "## Templates and XComArgs"), maxsplit=1)[0]

    assert code(first) == list(DeltaIncrementalIngestOperator.template_fields)


def test_the_refused_options_are_documented_as_the_code_tells_them():
    page = section(FILES, "## Refused options")
    taken = [f"{name}={one.harmless}" for name, one in REFUSED.items() if one.harmless]

    assert [(code(row[0])[0], row[1], row[2]) for row in rows(page)] == [
        (name, one.does, one.instead) for name, one in REFUSED.items()
    ]
    assert sorted(code(page.split("The values")[1].split("|")[0])) == sorted(taken)


def known(write: Any, mode: str, engine: Any) -> dict[str, Any]:
    return {"write": write, "mode": mode, "engine": engine, "delta_location": "/t", "table": A_TABLE}


def goes_together(*case: Any) -> str:
    try:
        capabilities.check((*capabilities.TOGETHER, *capabilities.IN_JOBS), known(*case))
    except InputError:
        return "no"
    return "yes"


def named(case: capabilities.Case, of: type[Any] | None = None) -> str:
    """Say in the words of the page what a case is.

    :param of: The write whose argument it is.
    """
    if of:
        case = case._replace(argument=case.argument.replace("write", of.__name__))
    if case.value is None:
        return f"no `{case.argument}`"
    if case.value is capabilities.GIVEN:
        return f"`{case.argument}`"
    if isinstance(case.value, type):
        return f"`{case.value.__name__}(…)`"
    if case.value == ():
        return f"no `{case.argument}`"
    value = "replace" if case.value == specs.Replace() else case.value
    return f'`{case.argument}="{value}"`'


A_TABLE = specs.TableSpec(columns={"a": "int"})
WRITES = {
    '`"append"`': "append",
    '`"replace"`': specs.Replace(),
    "`Replace(where=…)`": specs.Replace(where="a"),
    "`Merge(…)`": specs.Merge(primary_key="id"),
    "`Scd2(…)`": specs.Scd2(),
}


def test_which_writes_modes_and_engines_go_together_is_what_the_code_says():
    table = [row for row in rows(section(OPERATOR, "## What goes together")) if len(row) == 4]

    assert table == [
        [
            name,
            f'`"{mode}"`',
            *(goes_together(write, mode, e) for e in (specs.SparkEngine(), specs.ScopeEngine())),
        ]
        for name, write in WRITES.items()
        for mode in get_args(Mode)
    ]


def test_what_is_refused_beside_what_is_documented_as_the_code_tells_it():
    table = [row for row in rows(section(OPERATOR, "## What goes together")) if len(row) == 3]

    assert table == [
        [f"`{one.beside.text}`", named(one.refused, one.only), one.do]
        for one in (*capabilities.TOGETHER, *capabilities.IN_JOBS)
    ]


def test_the_settings_of_spark_are_documented():
    cells = [cell for row in rows(section(SPARK, "## Settings")) for cell in row if "spark." in cell]
    named = [name for cell in cells for name in code(cell)]
    settings = {**application.REQUIRED_CONF, **application.LOCAL_CONF}

    assert {name.split("=", 1)[0] for name in named} == set(settings)
    assert {name for name in named if "=" in name} <= {f"{key}={value}" for key, value in settings.items()}


def test_the_exact_settings_are_documented_as_the_code_tells_them():
    settings = {**EXACT, **EXACT_AT_START}

    assert [(code(row[0])[0], row[1]) for row in rows(section(SPARK, "## Exact settings"))] == [
        (f"{name}={one.value}", one.reason) for name, one in settings.items()
    ]


def test_every_reason_for_leaving_a_file_out_is_documented():
    table = rows(section(FILES, "## Which files a run takes"))

    assert sorted(code(row[0])[0] for row in table) == sorted(get_args(Reason))


def test_every_key_of_the_returned_report_is_documented():
    keys = [name for row in rows(section(OPERATOR, "## Report")) for name in code(row[0])]

    assert sorted(keys) == sorted(RunReport(roots=(LANDING,)).to_xcom())


def test_the_report_that_is_shown_is_the_one_that_is_logged():
    odd = Tally()
    odd.add("hidden name", f"{LANDING}/2014/01/04/_hidden.parquet")
    odd.add("zero length", f"{LANDING}/2014/01/04/empty.parquet")
    odd.hold("too young", FileEntry(1_388_793_882_000, f"{LANDING}/2014/01/04/flights.parquet", 34_000))
    loaded = RunReport(roots=(LANDING,), left_out=odd, safety_buffer_seconds=30, table_version=9)
    loaded.batches = [
        BatchReport(
            a_commit(8, files=5, size_bytes=195_874, rows=4_276, table_version=8),
            "append",
            already_there=True,
        ),
        BatchReport(a_commit(9, files=2, size_bytes=77_012, rows=1_635, table_version=9), "append"),
    ]
    loaded.watermark_ms = 1_388_793_600_000
    newest = FileEntry(1_388_534_400_000, f"{LANDING}/2013/12/31/flights.parquet", 34_000)
    nothing = RunReport(roots=(LANDING,), listed=366, matched=366, newest=newest, already_loaded=365)
    nothing.left_out.add("zero length", f"{LANDING}/2013/06/15/empty.parquet")
    nothing.watermark_ms = 1_388_534_400_000

    changes = {"inserted": 12, "updated": 600, "deleted": 28}
    found = VersionSlice(
        before="",
        identifier="default",
        source="",
        location="",
        first=42,
        last=53,
        snapshot=False,
        changed_bytes=48_112,
    )
    entry = an_entry(3, slice=found)
    record = a_commit(3, table_version=7, files=0, size_bytes=48_112, rows=640, changes=changes)
    feed = RunReport(roots=(LANDING,), table_version=7, batches=[BatchReport.of(entry, record)])

    shown = [block.text for block in blocks(section(OPERATOR, "## Report"), "text")]

    assert shown[:3] == [loaded.text() + "\n", feed.text() + "\n", nothing.text() + "\n"]


def test_the_names_that_count_without_patterns_are_those_of_the_code():
    text = section(FILES, "## Usual names")
    documented = {code(row[0])[0]: code(row[1]) for row in rows(text) if row[0].startswith("`")}
    packed = code(text.split("may be compressed: ")[1].split(" comes after")[0])

    assert {*documented} == {*get_args(FileFormat)}
    for kind, endings in documented.items():
        for ending in endings:
            assert re.search(usual_pattern(kind), "a" + ending)
            for more in packed:
                assert bool(re.search(usual_pattern(kind), "a" + ending + more)) is (kind in TEXT_FORMATS)


def test_the_line_for_patterns_that_match_nothing_is_what_a_report_says():
    report = RunReport((LANDING,), listed=2, patterns=(r"\.csv$",), unmatched=("a.tsv", "b.tsv"))

    page = section(FILES, "## Usual names")
    assert blocks(page, "text")[0].text == report.text() + "\n"
    assert f"`{RunReport((LANDING,)).why_nothing()}`" in page


def test_the_progress_that_is_shown_is_what_the_engine_reports():
    progress = blocks(section(OPERATOR, "## Report"), "text")[3].text
    log = re.search(r"Spark's log: (\S+)", progress)
    assert log
    lines: list[str] = []
    events = ApplicationEvents(lines.append)

    events.take({"event": "batch", "seq": 8, "what": "5 files", "version": None, "seconds": 0.2})
    events.take({"event": "batch", "seq": 9, "what": "2 files", "version": 9, "seconds": 1.4})

    assert progress.splitlines()[1:] == lines
