"""``python -m tests.intervals``: a table that a real Airflow fills by catchup and backfill at once.

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
from typing import TYPE_CHECKING

from tests.chaos.deeds import TASK, Deeds
from tests.intervals.world import DAY, Verdict, World
from tests.real_airflow.deployment import Deployment
from tests.real_airflow.postgres import PostgresMissingError, postgres

if TYPE_CHECKING:
    from collections.abc import Callable

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
    parser.add_argument("--intervals", type=int, default=12, help="that are caught up")
    parser.add_argument("--backfilled", type=int, default=4, help="intervals that are filled in beside them")
    parser.add_argument("--minutes", type=float, default=15.0, help="after which it is given up")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scope-intervals-"))
    say(f"logs of all processes: {folder / 'airflow' / 'out'}")
    world = World(folder)
    caught_up = [FIRST + number * DAY for number in range(options.intervals)]
    backfilled = [BACKFILL_FIRST + number * DAY for number in range(options.backfilled)]
    for day in (*caught_up, *backfilled):
        world.land_day(day)
    try:
        with postgres() as database:
            environment = {
                **SETTINGS,
                "INTERVALS_FOLDER": str(folder),
                "INTERVALS_FIRST": f"{caught_up[0]:%Y-%m-%d}",
                "INTERVALS_LAST": f"{caught_up[-1]:%Y-%m-%d}",
                "INTERVALS_BACKFILL_FIRST": f"{backfilled[0]:%Y-%m-%d}",
            }
            airflow = Deployment(folder / "airflow", DAGS, database, environment)
            try:
                airflow.start()
                say("api-server, scheduler, dag-processor and triggerer run on PostgreSQL")
                Story(airflow, world, caught_up, backfilled, options.minutes * 60).tell()
            finally:
                airflow.stop()
    except PostgresMissingError as err:
        sys.stderr.write(f"{err}\n")
        return 2
    verdict = world.judge()
    good = str(verdict) == str(Verdict(intervals=options.intervals + options.backfilled))
    if good:
        shutil.rmtree(folder)
    sys.stdout.write(f"{verdict}\n")
    return 0 if good else 1


class Story:
    """What happens, in order."""

    def __init__(
        self,
        airflow: Deployment,
        world: World,
        caught_up: list[datetime],
        backfilled: list[datetime],
        seconds: float,
    ) -> None:
        self.airflow = airflow
        self.world = world
        self.caught_up = caught_up
        self.backfilled = backfilled
        self.deadline = time.monotonic() + seconds
        self.deeds = Deeds(airflow, {}, random.Random(0), say)

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
        self.wait(self.all_done, "all runs")
        for dag in ("catchup", "backfilled"):
            say(f"{dag}: {len(rest.runs(dag))} runs, {self.tries(dag)} tries")

    def backfill(self, dag: str, first: datetime, last: datetime, again: str) -> None:
        """Ask for a backfill, as the button does."""
        body = {
            "dag_id": dag,
            "from_date": first.isoformat(),
            "to_date": last.isoformat(),
            "reprocess_behavior": again,
            "max_active_runs": 1,
        }
        self.airflow.rest.call("POST", "/backfills", body)

    def kill(self, *, supervisor: bool) -> None:
        """Kill a task with -9 while its Spark works; the Spark lives on."""
        plans = "table/_checkpoint/intervals/*/plans/*"
        self.wait(lambda: any(self.world.folder.glob(plans)), "Spark")
        self.wait(lambda: self.deeds.kill_worker(supervisor=supervisor), "a task to kill")
        say(f"{'worker' if supervisor else 'task'} killed -9")

    def done(self, days: list[datetime]) -> bool:
        runs = self.airflow.rest.runs("catchup")
        return all(runs.get(run_id(day)) == "success" for day in days)

    def all_done(self) -> bool:
        states = [*self.airflow.rest.runs("catchup").values(), *self.airflow.rest.runs("backfilled").values()]
        failed = states.count("failed")
        if failed:
            raise AssertionError(f"{failed} runs failed; see {self.airflow.folder}")
        expected = len(self.caught_up) + len(self.backfilled)
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


def run_id(day: datetime) -> str:
    """Give the name that the scheduler gives the run of a day: it has the time at which the day is over."""
    return f"scheduled__{(day + DAY).isoformat()}"


def say(line: str) -> None:
    """Tell how it goes."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
