"""Sources that nobody tuned, by the operator in real Dag runs, with Spark started by spark-submit."""

from __future__ import annotations

import bz2
import gzip
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource
from tests.datasets import generator, lab, packages
from tests.datasets.generator import Case, File

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.loads]

VEGA = "vega_datasets/_data"


def odd_copies(case: Case) -> Case:
    """Return copies of the one file of a source under odd and tidy names, plain and compressed."""
    (file,) = case.files
    dot = file.name.rindex(".")
    stem, suffix = file.name[:dot], file.name[dot:]
    places = (
        f"{stem}{suffix}",
        f"[x]{suffix}",
        f"sub/{{a,b}}{suffix}",
        f"a b/star*{suffix}",
        f"grüße %20 #1{suffix}",
    )
    files = [File(place, file.content, file.rows) for place in places]
    files.append(File(f"[0-9]{suffix}.gz", gzip.compress(file.content), file.rows))
    files.append(File(f"tidy{suffix}.bz2", bz2.compress(file.content), file.rows))
    return replace(case, files=files)


def load(run_dag: Any, folder: Path, case: Case, **more: Any) -> lab.Lab:
    source = lab.Lab(None, folder, case)
    old = time.time() - 3600
    for file in case.files:
        os.utime(source.folder / "landing" / file.name, (old, old))
    with DAG("datasets", schedule=None) as dag:
        DeltaIncrementalIngestOperator(
            task_id="ingest",
            delta_location=str(source.table),
            source=FileSource(
                roots=str(source.folder / "landing"),
                patterns=r".*",
                format=case.format,
                columns=case.source_columns,
                options=case.options,
                max_files_per_trigger=5,
            ),
            sql=case.sql,
            **more,
        )
    run = run_dag(dag)
    assert run.state == "success", case.describe()
    return source


def check(source: lab.Lab) -> None:
    fields = [(name, kind.delta) for name, kind in source.case.selected]
    assert source.declared_in_delta() == fields
    assert lab.difference(source.expected(), lab.table_rows(lab.read_table(source.table))) == ""


def test_a_headerless_file_is_in_the_table_by_the_order_of_the_declared_columns(run_dag, tmp_path):
    case = packages.case(packages.files()[f"{VEGA}/airports.csv"], header=False)

    source = load(run_dag, tmp_path, odd_copies(case))

    assert DeltaTable(str(source.table)).schema().fields[0].name == "iata"
    check(source)


def test_a_real_file_with_a_header_is_in_the_table_cell_by_cell_under_every_name(run_dag, tmp_path):
    check(load(run_dag, tmp_path, odd_copies(packages.case(packages.files()[f"{VEGA}/seattle-weather.csv"]))))


def test_real_json_documents_are_in_the_table_value_by_value_under_every_name(run_dag, tmp_path):
    check(load(run_dag, tmp_path, odd_copies(packages.case(packages.files()[f"{VEGA}/driving.json"]))))


@pytest.mark.parametrize(("kind", "seed"), [("csv", 7), ("parquet", 18)])
def test_a_source_that_nobody_chose_is_in_the_table_value_by_value(run_dag, tmp_path, kind, seed):
    case = generator.case(seed, kind=kind)
    # The SELECT is checked when the Dag is parsed, so it says the columns as the files have them.
    check(load(run_dag, tmp_path, replace(case, with_uri=False)))
