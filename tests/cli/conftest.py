"""Pipelines on a disk, and the commands of ``airflow scope`` as Airflow's own parser calls them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from airflow_provider_scope.engines import assembly, clock
from airflow_provider_scope.exceptions import ScopeProviderError, StorageError
from airflow_provider_scope.protocol.records import Pipeline, decode
from tests.crash.world import NOW_MS, DeltaWorld
from tests.support.delta_engine import local
from tests.support.faulty_storage import before, open_gate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


HOUR_MS = 3_600_000


def typed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Type ``airflow scope ...``; give the exit code and what was written."""
    from airflow.cli.cli_parser import get_parser

    capsys.readouterr()
    args = get_parser().parse_args(["scope", *map(str, words)])
    code = 0
    try:
        args.func(args)
    except SystemExit as end:
        code = int(end.code or 0)
    written = capsys.readouterr()
    return code, written.out, written.err


@dataclass(frozen=True)
class Said:
    """What a command wrote, with names that differ from run to run replaced."""

    code: int
    out: str
    err: str


class Desk:
    """Somebody on call, with a pipeline and a terminal."""

    def __init__(self, world: DeltaWorld, capsys: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self.capsys = capsys

    def scope(self, *words: str) -> Said:
        code, out, err = typed(self.capsys, *words)
        return Said(code, self.masked(out), self.masked(err))

    def table_command(self, name: str, *words: str) -> Said:
        return self.scope(name, self.world.table, *words)

    def reads(self, *words: str) -> Said:
        """Type a command, and see that it wrote nothing to the source, the table and the checkpoint."""
        files = self.tree()
        said = self.scope(*words)
        assert self.tree() == files
        return said

    def table_reads(self, name: str, *words: str) -> Said:
        return self.reads(name, self.world.table, *words)

    def listed(self) -> list[dict[str, Any]]:
        return json.loads(self.reads("list", "-o", "json").out)

    def masked(self, text: str) -> str:
        pipeline = self.world.storage.read(f"{self.world.checkpoint}/pipeline.json")
        if pipeline:
            text = text.replace(decode(Pipeline, "pipeline.json", pipeline).pipeline, "PIPELINE")
        if DeltaTable.is_deltatable(local(self.world.table)):
            text = text.replace(str(DeltaTable(local(self.world.table)).metadata().id), "TABLE-ID")
        return text.replace(str(self.world.folder), "")

    def tree(self) -> dict[str, bytes]:
        """Return every file of the landing folder, the table and the checkpoint."""
        files = (path for path in self.world.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.world.folder)): path.read_bytes() for path in files}

    def size(self, *names: str) -> str:
        folder = self.world.folder / "landing"
        return f"{sum((folder / name).stat().st_size for name in names):,} bytes"

    # ---- how pipelines get into trouble ----------------------------------------------------------

    def loaded(self, *names: str) -> None:
        """Land files of two rows each, an hour old and less, and load each as a batch of its own."""
        self.world.max_files = 1
        for position, name in enumerate(names):
            self.world.drop(name, 3_600 - position)
        self.world.run()

    def fails(self, when: str, effect: Callable[[], None]) -> None:
        """Run, and let something happen before a step such as ``files 1`` or ``put commits/...``."""
        with pytest.raises(ScopeProviderError):
            self.world.run(before(when, effect))

    def vanished(self, name: str, seq: int) -> None:
        """Land a file that vanishes between the log and the load of its batch."""
        self.world.drop(name, 1_800)
        self.fails(f"files {seq}", lambda: self.world.hide(name))

    def unrecorded(self, name: str, seq: int) -> None:
        """Load a file; the disk is full when the batch is to be recorded."""

        def full() -> None:
            raise StorageError("No space left on device")

        self.world.drop(name, 1_800)
        self.fails(f"put commits/{seq:020}", full)

    def rows_are_those_of(self, *names: str) -> bool:
        """Return whether the table holds the two rows of each file, once."""
        expected = [
            (f"file://{self.world.folder}/landing/{name}", id_, 1) for name in names for id_ in (0, 1)
        ]
        return sorted(self.world.rows().elements()) == sorted(expected)


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command sets for its process ends with the test."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
    monkeypatch.delenv("_AIRFLOW_PROCESS_CONTEXT")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    """One hour after the last run. Batches are run and fenced by the world's engine instead of by Spark."""
    made = Desk(DeltaWorld(tmp_path), capsys)
    monkeypatch.setattr(clock, "now_ms", lambda: NOW_MS + HOUR_MS)
    monkeypatch.setattr(assembly, "spark_engine", lambda *_, **__: made.world.engine(open_gate))
    return made


HEAD = """\
from airflow.sdk import DAG, task
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.specs import FileSource

with DAG("planned", schedule=None, params={{"part": "landing", "full": False}}) as dag:

    @task
    def folder():
        return "{folder}"

    @task
    def folders():
        return ["{folder}/three"]

    folder()
    DeltaIncrementalIngestOperator.partial(
        task_id="mapped", source=FileSource(roots="{folder}/landing", format="parquet")
    ).expand(delta_location=["{folder}/one", "{folder}/two"])
    DeltaIncrementalIngestOperator.partial(
        task_id="mapped_late", source=FileSource(roots="{folder}/landing", format="parquet")
    ).expand(delta_location=folders())
    DeltaIncrementalIngestOperator(
        task_id="ingest",
        delta_location="{folder}/table",
"""


@pytest.fixture
def dag_file(desk: Desk, in_dags: Callable[[str, str], Path]) -> Callable[..., None]:
    """Write a Dag file with a task over the landing folder; arguments are Python text."""

    def write(source: str = '"{{ params.part }}"', more: str = "", **arguments: str) -> None:
        text = HEAD.format(folder=desk.world.folder)
        text += f"        source=FileSource(roots='{desk.world.folder}/' + {source}, format='parquet', "
        text += "patterns=r'\\.parquet$', max_files_per_trigger=1),\n"
        text += "".join(f"        {name}={value},\n" for name, value in arguments.items())
        in_dags("planned.py", text + "    )\n" + more)

    return write
