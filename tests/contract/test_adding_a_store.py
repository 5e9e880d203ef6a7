"""Who follows "Add a store" has a store: one row, one module.

The module is ``tests/support/toy_store.py``. As a backend of the suite it passes ``test_storage.py`` too.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_scope.engines.assembly import RunContext, assemble
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.hooks.stores import hadoop_version
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource
from airflow_provider_scope.stores.kinds import KINDS, OTHER, StoreKind, kind_of
from airflow_provider_scope.stores.protocol import canonical_uri
from tests.docs.pages import ROOT, code, prose, section
from tests.support.delta_engine import DeltaEngine
from tests.support.storages import BACKENDS
from tests.support.toy_store import ToyStorage, registered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACKAGE = ROOT / "airflow_provider_scope"


@pytest.fixture
def toy() -> Iterator[None]:
    with registered():
        yield


def test_the_page_names_what_is_there():
    page = section(ROOT / "CONTRIBUTING.md", "### Add a store")
    named = code(prose(page))
    files = [name for name in named if re.fullmatch(r"(?:\w+/)+\w+\.(?:py|md)", name)]
    assert len(files) >= 5
    assert [name for name in files if not any((folder / name).exists() for folder in (ROOT, PACKAGE))] == []
    assert {field.name for field in fields(StoreKind)} <= {*named}


def test_every_kind_that_holds_control_files_passes_the_contract():
    tested = {"gen1": "adl", "azurite": "abfss", "local": "file", "hdfs": "webhdfs"}
    known = {tested.get(backend.name, backend.name) for backend in BACKENDS}
    assert [kind.name for kind in KINDS if not kind.no_control_files and not known & {*kind.schemes}] == []


@pytest.mark.parametrize("kind", [*KINDS, OTHER], ids=lambda kind: kind.name)
def test_the_functions_of_every_row_are_there(kind: StoreKind):
    assert callable(resolve_name(kind.canonical))
    assert callable(resolve_name(kind.open))


def test_no_scheme_has_two_rows():
    schemes = [scheme for kind in KINDS for scheme in (*kind.schemes, *kind.aliases)]
    assert len({*schemes}) == len(schemes)


def test_without_the_row_it_is_a_source_of_fsspec():
    assert kind_of("toy:///data") is OTHER
    with pytest.raises(InputError, match="is on toy://, which can hold sources, but not tables"):
        canonical_uri("toy:///data")


@pytest.mark.usefixtures("toy")
def test_its_locations_have_one_spelling():
    assert canonical_uri("TOYS:///data//in/") == "toy:///data/in"
    with pytest.raises(InputError, match="names a host"):
        canonical_uri("toy://host/data")
    with pytest.raises(InputError) as caught:
        canonical_uri("gs://bucket/data")
    assert (
        caught.value.do
        == "name a location on abfss://, adl://, webhdfs://, swebhdfs://, s3:// or toy:// or on a disk"
    )


@pytest.mark.usefixtures("toy")
def test_the_operator_loads_a_batch_of_it_into_a_table_on_it(tmp_path: Path):
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        pq.write_table(pa.table({"id": [number], "day": [7]}), tmp_path / "in" / f"{number}.parquet")
    source = FileSource(roots=f"toy://{tmp_path}/in", format="parquet", safety_buffer_seconds=0)
    task = DeltaIncrementalIngestOperator(
        task_id="t", delta_location=f"toys://{tmp_path}/table", source=source
    )

    context = RunContext(task="d.t", log_file=tmp_path / "spark.log", report=print)
    execution, request, runner = assemble(task.ingest(), context)
    stores = [*runner.stores.values()]
    execution.engine = DeltaEngine()
    execution.run(request)

    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().sort_by("id").to_pydict()
    assert rows == {
        "id": [1, 2],
        "day": [7, 7],
        "file": [f"toy://{tmp_path}/in/1.parquet", f"toy://{tmp_path}/in/2.parquet"],
    }
    assert sorted(path.name for path in (tmp_path / "table" / "_checkpoint" / "commits").iterdir()) == [
        f"{0:020}"
    ]
    assert {type(store.storage) for store in stores} == {ToyStorage}
    assert stores[0].spark_conf == {"spark.hadoop.fs.toy.impl": "org.example.ToyFileSystem"}
    assert stores[0].packages == (f"org.apache.hadoop:hadoop-toy:{hadoop_version()}",)
