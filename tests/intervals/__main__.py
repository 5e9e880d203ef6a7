"""``python -m tests.intervals``: tables that a real Airflow fills by catchup, backfill and asset events.

PostgreSQL, the scheduler with LocalExecutor, the dag-processor, the api-server and a triggerer run as
processes of their own; the batches run on Spark in the workers. The last line is what counts.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.chaos.deeds import TASK, Deeds
from tests.intervals.world import DAY, ChainWorld, FileWorld, RowWorld, Verdict, World
from tests.real_airflow.deployment import Deployment
from tests.real_airflow.postgres import PostgresMissingError, postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DAGS = Path(__file__).parent / "dags"
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
BACKFILL_FIRST = datetime(2025, 12, 1, tzinfo=UTC)
SETTINGS = {
    # Airflow's own default is 300 s until a lost worker is noticed.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "40",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    # Each task reads the Dag file anew, beside up to five Sparks.
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
    "AIRFLOW__CORE__PARALLELISM": "6",
}


def main() -> int:
    """Run, and say what is true in the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.intervals", description=__doc__)
    parser.add_argument("--source", choices=[*STORIES], help="what is loaded; all, one after the other")
    parser.add_argument("--intervals", type=int, default=12, help="of files that are caught up")
    parser.add_argument("--backfilled", type=int, default=4, help="of files that are filled in beside them")
    parser.add_argument("--rows", type=int, default=30, help="intervals of rows that are filled in")
    parser.add_argument("--minutes", type=float, default=20.0, help="after which each is given up")
    options = parser.parse_args()
    total = Verdict()
    expected = 0
    for name in [options.source] if options.source else STORIES:
        try:
            verdict, intervals = tell(STORIES[name], options)
        except PostgresMissingError as err:
            sys.stderr.write(f"{err}\n")
            return 2
        say(f"{name}: {verdict}")
        total.add(verdict)
        expected += intervals
    sys.stdout.write(f"{total}\n")
    return 0 if total == Verdict(intervals=expected) else 1


def tell(story_of: type[Files | Rows | Chain], options: argparse.Namespace) -> tuple[Verdict, int]:
    """Tell a story in an Airflow of its own; give what is true then, and how many intervals there are."""
    folder = Path(tempfile.mkdtemp(prefix="scope-intervals-"))
    say(f"logs of all processes: {folder / 'airflow' / 'out'}")
    story = story_of(folder, options)
    with postgres() as database:
        environment = {**SETTINGS, "INTERVALS_FOLDER": str(folder), **story.environment()}
        airflow = Deployment(folder / "airflow", DAGS / story.dags, database, environment)
        try:
            airflow.start()
            say("api-server, scheduler, dag-processor and triggerer run on PostgreSQL")
            story.begin(airflow)
            story.tell()
        finally:
            airflow.stop()
    verdict, intervals = story.world.judge(), len(story.intervals)
    if verdict == Verdict(intervals=intervals):
        shutil.rmtree(folder)
    return verdict, intervals


class Story:
    """What happens, in order."""

    dags: ClassVar[str]
    """The folder of its Dags."""
    world: World
    intervals: Sequence[datetime]

    def __init__(self, options: argparse.Namespace) -> None:
        self.seconds = options.minutes * 60

    def environment(self) -> dict[str, str]:
        """Return what the Dag files read."""
        raise NotImplementedError

    def tell(self) -> None:
        """Let things happen, and wait until all is done."""
        raise NotImplementedError

    def begin(self, airflow: Deployment) -> None:
        """Take the Airflow in which it happens."""
        self.airflow = airflow
        self.deadline = time.monotonic() + self.seconds
        self.deeds = Deeds(airflow, {}, random.Random(0), say)

    def backfill(self, dag: str, first: datetime, last: datetime, again: str, at_once: int = 1) -> None:
        """Ask for a backfill, as the button does."""
        body = {
            "dag_id": dag,
            "from_date": first.isoformat(),
            "to_date": last.isoformat(),
            "reprocess_behavior": again,
            "max_active_runs": at_once,
        }
        self.airflow.rest.call("POST", "/backfills", body)

    def kill(self, *, supervisor: bool) -> None:
        """Kill a task with -9 while its Spark works; the Spark lives on."""
        plans = "table/_checkpoint/intervals/*/plans/*"
        self.wait(lambda: any(self.world.folder.glob(plans)), "Spark")
        self.wait(lambda: self.deeds.kill_worker(supervisor=supervisor), "a task to kill")
        say(f"{'worker' if supervisor else 'task'} killed -9")

    def all_done(self, *dags: str, expected: int) -> bool:
        """Return whether so many runs of some Dags have succeeded, and none is left.

        :raises AssertionError: One failed.
        """
        states = [state for dag in dags for state in self.airflow.rest.runs(dag).values()]
        failed = states.count("failed")
        if failed:
            raise AssertionError(f"{failed} runs failed; see {self.airflow.folder}")
        return len(states) >= expected and set(states) == {"success"}

    def tries(self, dag: str) -> int:
        runs = self.airflow.rest.runs(dag)
        return sum(self.airflow.rest.task(dag, run, TASK)["try_number"] for run in runs)

    def wait(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is true.

        :raises AssertionError: It is not, until the time is over.
        """
        while not true():
            if time.monotonic() > self.deadline:
                raise AssertionError(f"given up: {what} not there; see {self.airflow.folder}")
            time.sleep(1)


class Files(Story):
    """Files by catchup, and by a backfill beside it; some of them come late."""

    dags = "files"
    world: FileWorld

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.world = FileWorld(folder)
        self.caught_up = [FIRST + number * DAY for number in range(options.intervals)]
        self.backfilled = [BACKFILL_FIRST + number * DAY for number in range(options.backfilled)]
        self.intervals = [*self.caught_up, *self.backfilled]
        for day in self.intervals:
            self.world.land_day(day)

    def environment(self) -> dict[str, str]:
        """Return the ends of both."""
        return {
            "INTERVALS_FIRST": f"{self.caught_up[0]:%Y-%m-%d}",
            "INTERVALS_LAST": f"{self.caught_up[-1]:%Y-%m-%d}",
            "INTERVALS_BACKFILL_FIRST": f"{self.backfilled[0]:%Y-%m-%d}",
        }

    def tell(self) -> None:
        """Let Airflow catch up and fill in, kill and clear meanwhile, and wait until all is done."""
        rest = self.airflow.rest
        self.wait(lambda: rest.dags() >= {"catchup", "backfilled"}, "the Dags")
        rest.unpause("catchup")
        rest.unpause("backfilled")
        self.backfill("backfilled", self.backfilled[0], self.backfilled[-1], "none")
        say(f"{len(self.caught_up)} intervals to catch up, {len(self.backfilled)} to fill in beside them")
        self.kill(supervisor=False)
        self.wait(lambda: self.done(self.caught_up[:3]), "the first intervals")
        late = self.caught_up[0]
        self.world.land(late, late=DAY / 3)
        rest.clear("catchup", run_id(late), TASK)
        say(f"a file came late, and {run_id(late)} is cleared")
        for day in self.caught_up[1:3]:
            self.world.land(day, late=DAY / 3)
        self.backfill("catchup", self.caught_up[1], self.caught_up[2], "completed")
        say("files came late into two other intervals, which are filled in again")
        self.kill(supervisor=True)
        count = len(self.intervals)
        self.wait(lambda: self.all_done("catchup", "backfilled", expected=count), "all runs")
        for dag in ("catchup", "backfilled"):
            say(f"{dag}: {len(rest.runs(dag))} runs, {self.tries(dag)} tries")

    def done(self, days: list[datetime]) -> bool:
        """Return whether some days were caught up."""
        runs = self.airflow.rest.runs("catchup")
        return all(runs.get(run_id(day)) == "success" for day in days)


class Rows(Story):
    """Rows of a table by a backfill, four intervals at a time; then an incremental load goes on."""

    dags = "rows"
    world: RowWorld

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.intervals = [FIRST + number * DAY for number in range(options.rows)]
        self.world = RowWorld(folder, self.intervals)
        self.behind = self.intervals[-1] + DAY

    def environment(self) -> dict[str, str]:
        """Return the first day, the last one, and the end of the last one."""
        return {
            "INTERVALS_FIRST": f"{self.intervals[0]:%Y-%m-%d}",
            "INTERVALS_LAST": f"{self.intervals[-1]:%Y-%m-%d}",
            "INTERVALS_BEHIND": self.behind.isoformat(),
        }

    def tell(self) -> None:
        """Fill in, kill meanwhile; go on with what is behind, and with what comes then."""
        rest = self.airflow.rest
        self.wait(lambda: rest.dags() >= {"rows", "rows_on"}, "the Dags")
        rest.unpause("rows")
        rest.unpause("rows_on")
        self.backfill("rows", self.intervals[0], self.intervals[-1], "none", at_once=4)
        say(f"{len(self.intervals)} intervals to fill in, four at a time")
        self.kill(supervisor=True)
        self.kill(supervisor=False)
        self.wait(lambda: self.all_done("rows", expected=len(self.intervals)), "all runs")
        say(f"rows: {len(rest.runs('rows'))} runs, {self.tries('rows')} tries")
        for number in (1, 2):
            self.world.land_day(self.behind + (number - 1) * DAY)
            rest.trigger("rows_on", f"on_{number}")
            self.wait(lambda: self.all_done("rows_on", expected=number), "the load that goes on")  # noqa: B023
        say("the incremental load went on, twice")


class Chain(Story):
    """Three tables in two Dags: each load of the first table starts the second Dag, by its asset."""

    dags = "chain"
    world: ChainWorld
    loads: ClassVar[list[dict[int, str | None]]] = [
        {1: "new", 2: "new", 3: "new"},
        {2: "paid", 4: "new"},
        {1: None, 2: "sent", 3: None},
    ]

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.world = ChainWorld(folder)
        self.intervals = [FIRST + number * DAY for number in range(len(self.loads))]

    def environment(self) -> dict[str, str]:
        """Return the file of the example."""
        example = Path(__file__).parents[2] / "dags_examples" / "example_changes_to_delta.py"
        return {"INTERVALS_EXAMPLE": str(example)}

    def tell(self) -> None:
        """Load the first table again and again, and wait for the scheduler to start the second Dag."""
        rest = self.airflow.rest
        first, second = "example_changes_to_delta", "example_changes_to_delta_next"
        self.wait(lambda: rest.dags() >= {first, second}, "the Dags")
        rest.unpause(first)
        rest.unpause(second)
        for number, orders in enumerate(self.loads, start=1):
            self.world.land(orders)
            rest.trigger(first, f"load_{number}")
            self.wait(lambda: self.all_done(first, expected=number), "the first table")  # noqa: B023
            self.wait(lambda: self.all_done(second, expected=number), "the run that its asset starts")  # noqa: B023
            say(f"load {number}: {', '.join(rest.runs(second))}")


STORIES: dict[str, type[Files | Rows | Chain]] = {"files": Files, "rows": Rows, "chain": Chain}


def run_id(day: datetime) -> str:
    """Return the name that the scheduler gives the run of a day: it has the time at which the day is over."""
    return f"scheduled__{(day + DAY).isoformat()}"


def say(line: str) -> None:
    """Tell how it goes."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
