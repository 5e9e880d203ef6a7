"""The commands on a task whose files, table and checkpoint are on Azure Storage."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest

from airflow_provider_scope.engines import clock
from tests.cli.conftest import HOUR_MS, Desk
from tests.crash.world import DeltaWorld
from tests.support import azurite

pytestmark = pytest.mark.azurite

EXAMPLE = Path(__file__).parents[2] / "dags_examples" / "example_files_to_delta_azure.py"


def test_the_example_is_planned_and_leaves_the_account_as_it_was(tmp_path, monkeypatch, capsys, in_dags):
    address, container = azurite.address(), uuid.uuid4().hex
    fs = azurite.filesystem(address)
    fs.mkdir(container)
    for name in ("a.parquet", "b c%.parquet", "notes.txt"):
        fs.pipe_file(f"{container}/landing/{name}", b"x")
    text = f"AccountName={azurite.ACCOUNT};AccountKey={azurite.KEY};BlobEndpoint={address}"
    monkeypatch.setenv(
        "AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "wasb", "extra": {"connection_string": text}})
    )
    before = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: before() + HOUR_MS)
    base = f"abfss://{container}@{azurite.HOST}"
    dag = EXAMPLE.read_text().replace("abfss://lake@acme.dfs.core.windows.net", base)
    path = in_dags("azure.py", dag)
    desk = Desk(DeltaWorld(tmp_path), capsys)
    try:
        said = desk.scope("plan", "example_files_to_delta_azure", "load_flights")
    finally:
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)

    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "new: 1 batch, 2 files\n"
        f"  0: append, 2 files, 2 bytes: {base}/landing/a.parquet … {base}/landing/b c%.parquet\n"
        "nothing was written\n"
    )
    assert len(fs.find(container)) == 3
