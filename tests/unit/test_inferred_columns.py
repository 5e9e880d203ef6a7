"""`columns="infer"`: where it is taken, and which batches have the columns of an earlier one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.columns import change_text, declared, with_hints
from airflow_provider_scope.exceptions import InputError, ScopeProviderError
from airflow_provider_scope.protocol.records import CommitRecord, SchemaVersion, decode
from airflow_provider_scope.protocol.recovery import CommittedBatch
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.specs.ingest import ingest_from
from tests.crash.world import MemoryWorld
from tests.support.faulty_storage import no_space_for
from tests.support.memory_engine import MemoryEngine
from tests.support.values import arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_scope.protocol.engine import Work
    from airflow_provider_scope.protocol.records import OffsetEntry
    from airflow_provider_scope.protocol.recovery import TableState
    from airflow_provider_scope.protocol.source import Request
    from airflow_provider_scope.sources.files.discovery import Rules


def source(**kwargs: Any) -> dict[str, Any]:
    return {"roots": ["/in"], "format": "csv", "columns": "infer", **kwargs}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_columns_can_be_inferred_for_texts(kind: str) -> None:
    ingest = ingest_from(arguments(source=source(format=kind)))

    assert ingest is not None
    assert ingest.source.columns == "infer"
    assert declared(ingest.source.columns) is None


@pytest.mark.parametrize("kind", ["parquet", "orc", "text", "sstream"])
def test_columns_of_other_formats_are_not_inferred(kind: str) -> None:
    with pytest.raises(InputError, match="declared columns or None with format="):
        FileSource(**source(format=kind))


@pytest.mark.parametrize("option", ["inferSchema", "samplingRatio", "PREFERSDATE"])
def test_options_of_another_inference_are_refused(option: str) -> None:
    with pytest.raises(InputError, match=option.lower()):
        FileSource(**source(options={option: "true"}))


def test_intervals_infer_no_columns() -> None:
    with pytest.raises(InputError, match=r"source\.columns.*data_interval"):
        ingest_from(arguments(source=source(), mode="data_interval"))


def test_the_columns_of_a_table_are_not_inferred() -> None:
    with pytest.raises(InputError):
        ingest_from(arguments(source=source(), table={"columns": "infer"}))


# ---- the columns of an earlier batch --------------------------------------------------------------


class Inferring(MemoryEngine):
    """Every commit names the columns that the run was given, or those that its first batch infers."""

    def __init__(self, world: Inferrer, gate: Any) -> None:
        super().__init__(world.delta, world.memory, gate)
        self.world = world

    def run(self, work: Work, entries: Sequence[OffsetEntry]) -> None:
        self.world.given.append(work.columns)
        for entry in entries:
            pinned = self.world.said.get(entries[0].seq) or work.columns
            self.world.said.setdefault(entry.seq, pinned or f"of_{entry.seq} string")
            super().run(work, [entry])

    def look(self, location: str, pipeline: str | None, baseline: Any) -> TableState:
        state = super().look(location, pipeline, baseline)
        committed = {
            seq: CommittedBatch(one.version, one.rows, None, one.abandoned, columns=self.columns(seq, one))
            for seq, one in state.committed.items()
        }
        return type(state)(state.identity, state.version, state.txn, committed, state.restores)

    def columns(self, seq: int, committed: CommittedBatch) -> str | None:
        return None if committed.abandoned or not self.world.infers else self.world.said.get(seq)


class Inferrer(MemoryWorld):
    def __init__(self) -> None:
        super().__init__()
        self.max_files = 1
        self.infers = True
        self.given: list[str | None] = []
        """What each run was given."""
        self.said: dict[int, str] = {}

    def engine(self, gate: Any) -> Inferring:
        return Inferring(self, gate)

    def asked(self, **asked: Any) -> tuple[Request, Rules]:
        request, rules = super().asked(**asked)
        return replace(request, infers_columns=self.infers), rules

    def load(self, name: str, at: int, **request: Any) -> None:
        self.drop(name, at)
        self.run(**request)

    def recorded(self, seq: int) -> str | None:
        name = f"{self.checkpoint}/commits/{seq:020}"
        return decode(CommitRecord, name, self.memory.control[name], seq=seq).columns


def test_each_run_is_given_the_columns_of_the_first_batch() -> None:
    world = Inferrer()
    for i, name in enumerate("abc"):
        world.load(name, 100 - i)

    assert world.given == [None, "of_0 string", "of_0 string"]
    assert [world.recorded(seq) for seq in range(3)] == ["of_0 string"] * 3


def test_columns_of_a_batch_that_is_in_the_table_and_not_recorded_are_not_lost() -> None:
    world = Inferrer()
    world.drop("a", 100)

    with pytest.raises(ScopeProviderError):
        world.run(no_space_for(f"put commits/{0:020}"))
    world.load("b", 90)

    assert world.given == [None, "of_0 string"]
    assert world.recorded(0) == "of_0 string"


def test_a_refresh_is_given_no_columns_and_the_batches_behind_it_are_given_its_own() -> None:
    world = Inferrer()
    world.load("a", 100)
    world.run(refresh=True)
    world.load("b", 90)

    assert world.given == [None, None, "of_1 string"]


def test_a_range_that_is_replaced_has_the_columns_of_the_rest_of_the_table() -> None:
    world = Inferrer()
    world.load("a", 100)
    world.load("b", 90, where="day = 1")

    assert world.given == [None, "of_0 string"]


def test_a_batch_that_was_given_up_is_passed_over() -> None:
    world = Inferrer()
    world.load("a", 100)
    world.drop("b", 90)

    def gone(call: Any, do: Any, torn: Any = None) -> Any:
        if call.name == "files 1":
            world.hide("b")
        return do()

    with pytest.raises(ScopeProviderError):
        world.run(gone)
    world.abandon(1)
    world.load("c", 80)

    assert world.given[-1] == "of_0 string"
    assert [world.recorded(seq) for seq in (1, 2)] == [None, "of_0 string"]


def test_columns_count_no_more_after_a_batch_that_inferred_none() -> None:
    world = Inferrer()
    world.load("a", 100)
    world.infers = False
    world.load("b", 90)
    world.infers = True
    world.load("c", 80)

    assert world.given == [None, None, None]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": {"a": "int"}}, "schema_hints=.* expected None without columns='infer'"),
        ({"columns": None}, "schema_hints=.* expected None without columns='infer'"),
        ({"schema_hints": {"a": ""}}, "schema_hints"),
        ({"schema_hints": {}}, "at least one column"),
        ({"schema_hints": {"source_file_uri": "string"}}, "virtual columns"),
        ({"schema_hints": "a int, A int"}, "each column once"),
    ],
)
def test_hints_are_types_of_inferred_columns(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        FileSource(**source(**{"schema_hints": {"a": "int"}, **changes}))


def test_hints_replace_types_and_come_last_but_do_not_differ_in_case_alone() -> None:
    columns = {"a": "string", "b": "string"}

    assert [*with_hints(columns, {"c": "int", "a": "int"}).items()] == [
        ("a", "int"),
        ("b", "string"),
        ("c", "int"),
    ]
    assert with_hints(columns, None) == columns
    with pytest.raises(InputError, match="schema_hints names 'B', and the files have 'b'"):
        with_hints(columns, {"B": "int"})


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (None, "a int", "a int"),
        ("a int", None, "no longer inferred"),
        ("a int, b string", "a int, b decimal(3,2), `c d` string", "+ c d string, b string -> decimal(3,2)"),
        ("a int, b string", "b string", "- a"),
    ],
)
def test_a_change_of_columns_as_text(before: str | None, after: str | None, text: str) -> None:
    assert change_text(before, after) == text


def test_each_change_of_the_columns_is_a_version_in_the_checkpoint() -> None:
    world = Inferrer()
    for seq, said in enumerate(["a int", "a int", "a int, b string", None, "a int"]):
        world.infers = said is not None
        if said:
            world.said[seq] = said
        world.load(f"f{seq}", 100 - seq)

    names = sorted(name for name in world.memory.control if "/schemas/" in name)
    versions = [
        decode(SchemaVersion, name, world.memory.control[name], seq=int(name[-20:])) for name in names
    ]
    assert [(version.seq, version.columns) for version in versions] == [
        (0, "a int"),
        (2, "a int, b string"),
        (3, None),
        (4, "a int"),
    ]
