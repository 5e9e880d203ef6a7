"""A world whose batches Spark runs, and the process that runs in it and is killed.

``python -m tests.crash.spark_world FOLDER STEP [DIE_AT [after]]`` does one step in a process group of
its own, and dies at an operation on the checkpoint if it is told to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from deltalake import DeltaTable

from airflow_provider_scope.delta.write_rules import VALID_FROM, VALID_TO
from airflow_provider_scope.engines.spark import SubmitEngine
from airflow_provider_scope.exceptions import ScopeProviderError
from airflow_provider_scope.specs import Expectation, FileSource, Merge, Scd2, SparkEngine, TableSpec
from airflow_provider_scope.specs.ingest import Ingest
from airflow_provider_scope.stores.local import LocalStorage
from tests.crash.world import DeltaWorld
from tests.support.faulty_storage import FaultyStorage, open_gate
from tests.support.processes import PROJECT
from tests.support.sequence_model import history, newest

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_scope.specs.write import Write
    from tests.crash.world import Row
    from tests.support.faulty_storage import Call, Gate

MAX_FILES = 3
SERVER = "SPARK_SERVER"
"""The variable that says whether a Spark that stays runs the batches, to the processes as well."""
TOMBSTONE = "tombstone"
WINDOW = (VALID_FROM, VALID_TO)
MERGED = Merge(primary_key=["id"], dedup_sort=("file", "desc"), hard_delete="gone")
IN_ORDER: dict[str, Write] = {
    "merge_in_order": Merge(strategy="upsert", primary_key=["id"], sequence_by="at", hard_delete="gone"),
    "scd2_in_order": Scd2(merge_key=["id"], sequence_by="at", hard_delete="gone"),
}
WRITES: dict[str, Write] = {"merge": MERGED, "scd2": Scd2(merge_key=["id"]), **IN_ORDER}
"""Row-level writes; a file of such a name says that it is the world's."""
KEYS = """SELECT (id + n) % 5 AS id, day, file, n = 6 AS gone FROM (SELECT *, source_file_uri AS file,
CAST(regexp_extract(source_file_uri, 'f([0-9]+)', 1) AS INT) AS n FROM @data)"""
"""Keys that come again in other batches; one file has rows to delete."""
EVENTS = """SELECT (id + n) % 5 * 4 + k AS id, file, n * 7 % 10 AS at, n IN (4, 5) AND k < 2 AS gone
FROM (SELECT *, explode(sequence(0, 3)) AS k, source_file_uri AS file,
CAST(regexp_extract(source_file_uri, 'f([0-9]+)', 1) AS INT) AS n FROM @data)"""
"""The same keys, four times; files come in another order than that of the source, and two delete half of
their keys."""
ASIDE = "aside"
"""A file of this name says that some rows are bad, and that what is bad goes to the quarantine."""


EXPECT = {"even": "id % 2 = 0", "odd": Expectation("id % 2 = 1", on_violation="warn", max_share=1)}


def server_wanted() -> Any:
    """Return what the engine's ``server`` is to be."""
    return os.environ.get(SERVER, "never")


class SparkWorld(DeltaWorld):
    """The same folders and files, with the product's own engine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.max_files = MAX_FILES
        self.puts_aside = (folder / ASIDE).exists()
        kind = next((name for name in WRITES if (folder / name).exists()), "")
        self.write = WRITES.get(kind, "append")
        self.is_in_order = kind in IN_ORDER
        self.beside = self.folder / ("table/_tombstones" if self.is_in_order else "table_quarantine")
        """The other Delta table that a batch writes, before this one."""

    def rows(self) -> Counter[Row]:
        """Return the rows of the table, and those of the quarantine beside them."""
        if self.is_in_order:
            return Counter(map(event, _read(self.folder / "table"))) + self._tombstones()
        if self.write != "append":
            return self._versions()
        found = super().rows()
        if self.puts_aside:
            for row in _read(self.beside):
                found[row["file"], f"{row['rule']}: {row['raw']}", row["batch"]] += 1
        return found

    def _versions(self) -> Counter[Row]:
        """Return rows that were merged, with the place of their windows among all windows."""
        rows = _read(self.folder / "table")
        instants = sorted({row[n] for row in rows for n in WINDOW if row.get(n)})
        return Counter(
            (row["file"], row["id"], *(instants.index(row[n]) if row.get(n) else -1 for n in WINDOW))  # type: ignore[misc]
            for row in rows
        )

    @property
    def _sql(self) -> str:
        if self.write == "append":
            return "SELECT id, day, source_file_uri AS file FROM @data"
        return EVENTS if self.is_in_order else KEYS

    def _tombstones(self) -> Counter[Row]:
        return Counter((TOMBSTONE, row["key"], row["sequence"], row["batch"]) for row in _read(self.beside))

    def check_model(self) -> None:
        """Compare the rows with those of a model that knows no batches."""
        events = defaultdict[int, list[dict[str, Any]]](list)
        for path in (self.folder / "landing").iterdir():
            n = int(path.name[1:3])
            for row, k in product(range(2), range(4)):
                key, is_gone = (row + n) % 5 * 4 + k, n in (4, 5) and k < 2
                more = {"file": f"file://{path}", "gone": is_gone, "sort": None}
                events[key].append({"id": key, "at": n * 7 % 10, **more})
        if isinstance(self.write, Scd2):
            windows = [version for rows in events.values() for version in history(rows, ["file"], None)]
            expected = [{**row, VALID_FROM: start, VALID_TO: end} for row, start, end in windows]
        else:
            expected = [row for rows in newest([*chain(*events.values())], None) for row in rows]
        rows = self.rows() - self._tombstones()
        assert rows == Counter(map(event, expected)), rows

    def engine(self, gate: Gate) -> Any:
        return SubmitEngine(
            settings=SparkEngine(conf={"spark.sql.shuffle.partitions": "2"}, server=server_wanted()),
            task="dag.load",
            ingest=Ingest(
                delta_location=self.table,
                source=FileSource(
                    roots=(self.root,),
                    patterns=(".*",),
                    format="parquet",
                    bad_records="quarantine" if self.puts_aside else "fail",
                ),
                table=TableSpec(expect=EXPECT if self.puts_aside else None),
                sql=self._sql,
                write=self.write,
            ),
            stores={},
            storage=FaultyStorage(self.storage, gate),
            table_storage=LocalStorage(),
            log_file=self.folder / "spark.log",
            new_id=lambda: str(uuid.uuid4()),
            report=lambda _line: None,
        )


def _read(table: Path) -> list[dict[str, Any]]:
    found = DeltaTable.is_deltatable(str(table))
    return DeltaTable(str(table)).to_pyarrow_table().to_pylist() if found else []


def event(row: dict[str, Any]) -> Row:
    """Return the values of a row that are not NULL, without its hash."""
    values = {name: value for name, value in row.items() if value is not None and name != "_row_hash"}
    return tuple(sorted(values.items()))  # type: ignore[return-value]


@dataclass
class DieAt:
    """Kills the process group at the first operation whose name starts like this."""

    name: str
    after: bool

    def __call__(self, call: Call, effect: Callable[[], Any], torn: Callable[[], None] | None = None) -> Any:
        here = call.name.startswith(self.name)
        result = None if here and not self.after else effect()
        if here:
            os.killpg(os.getpgid(0), signal.SIGKILL)
        return result


ENDED_WITH = "ended with: "
"""What comes before it on standard output is log."""


def main(folder: str, step: str, die_at: str = "", after: str = "") -> int:
    """Do a step; 1 and the error's name for an error of the package."""
    from tests.crash.spark_sources import world_of

    world = world_of(Path(folder))
    gate: Gate = DieAt(die_at, bool(after)) if die_at else open_gate
    try:
        if step == "accept":
            world.accept(gate)
        elif step == "abandon":
            log = world.log()
            world.abandon(min(set(log.logged()) - set(log.committed())), gate)
        else:
            world.run(gate, refresh=step == "refresh")
    except ScopeProviderError as err:
        sys.stdout.write(f"{ENDED_WITH}{type(err).__name__}\n{err}\n")
        return 1
    return 0


class Runner:
    """The process."""

    def __init__(self, world: DeltaWorld, step: str, *die_at: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.spark_world", str(world.folder), step, *die_at],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> str:
        """Wait for its end, and give the error it ended with; empty for none."""
        output, _ = self.process.communicate()
        if self.process.returncode not in (0, 1):
            return "killed"
        if self.process.returncode == 0:
            return ""
        return output.partition(ENDED_WITH)[2] or "an error that is none of ours"

    def applications(self) -> list[int]:
        """Return the process groups of what it started."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        groups = set()
        for child in children:
            try:
                groups.add(os.getpgid(child.pid))
            except ProcessLookupError:
                continue
        return sorted(groups - {self.process.pid})

    def kill(self, *, application: bool = True) -> list[int]:
        """Kill its process group with -9, then those of its applications.

        :return: The groups of applications that live on.
        """
        groups = self.applications()
        os.killpg(self.process.pid, signal.SIGKILL)
        for group in groups if application else ():
            kill_group(group)
        self.process.communicate()
        return [] if application else groups


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
    while any_in(group):
        time.sleep(0.01)


def any_in(group: int) -> bool:
    """Return whether a process of a group is alive, zombies aside."""
    for process in psutil.process_iter(["status"]):
        try:
            alive = process.info["status"] != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
        if alive:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
