"""``python -m tests.chaos``: 20 runs of 5 batches on a real Airflow to which things are done all the while.

PostgreSQL, the scheduler with LocalExecutor, the dag-processor, the api-server and two triggerers run as
processes of their own; the jobs run on the emulator, with faults. The last line is what counts.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.deeds import TASK, Deeds
from tests.chaos.world import Verdict, World
from tests.real_airflow.deployment import Deployment
from tests.real_airflow.postgres import PostgresMissingError, postgres

DAGS = Path(__file__).parent / "dags"
SETTLED_WITHIN_SECONDS = 60.0
SIGNS_OF_LIFE = {
    # Airflow's own defaults are 30 s and 300 s; with less, more of what is frozen is taken for dead.
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
}


def main() -> int:
    """Run, and say what is true in the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--dags", type=int, default=5)
    parser.add_argument("--runs", type=int, default=4, help="of each Dag, one after the other")
    parser.add_argument("--batches", type=int, default=5, help="of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=4.0, help="seconds between two deeds")
    parser.add_argument("--minutes", type=float, default=45.0, help="after which it is given up")
    parser.add_argument("--deeds", default="", metavar="REGEX", help="do those alone whose names match")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scope-chaos-"))
    say(f"logs of all processes: {folder / 'airflow' / 'out'}")
    world = World(folder / "account", options.seed)
    try:
        with postgres() as database:
            airflow = Deployment(
                folder / "airflow",
                DAGS,
                database,
                {
                    **SIGNS_OF_LIFE,
                    **connections(world),
                    "CHAOS_DAGS": str(options.dags),
                    "CHAOS_ACCOUNT": str(folder / "account"),
                },
            )
            try:
                airflow.start(triggerers=2)
                say("api-server, scheduler, dag-processor and two triggerers run on PostgreSQL")
                verdict = run(options, airflow, world)
            finally:
                airflow.stop()
    except PostgresMissingError as err:
        sys.stderr.write(f"{err}\n")
        return 2
    finally:
        world.close()
    expected = Verdict(committed=options.dags * options.runs * options.batches)
    good = str(verdict) == str(expected)
    if good:
        shutil.rmtree(folder)
    sys.stdout.write(f"{verdict}\n")
    return 0 if good else 1


def run(options: argparse.Namespace, airflow: Deployment, world: World) -> Verdict:
    """Start the runs, do things to Airflow until all are over, and judge."""
    chance = random.Random(options.seed)
    names = [f"chaos_{number}" for number in range(options.dags)]
    wait_for(lambda: airflow.rest.dags() >= set(names), 120, "the Dags")
    deeds = Deeds(airflow, {}, chance, say)
    for dag in names:
        airflow.rest.unpause(dag)
    deck = [(name, deed) for name, deed in deeds.all() if re.search(options.deeds, name)]
    deadline, left = time.monotonic() + options.minutes * 60, []
    while begin_runs(options, airflow, world, deeds.runs):
        if time.monotonic() > deadline:
            say(f"given up after {options.minutes:.0f} minutes: {deeds.runs}")
            break
        time.sleep(chance.uniform(0, 2 * options.pause))
        if not deck:
            continue
        left = left or chance.sample(deck, len(deck))
        name, deed = left.pop()
        say(name)
        deeds.done[name] += deed()
    wait_for(lambda: not any(job.state != "Ended" for job in world.jobs()), SETTLED_WITHIN_SECONDS, None)
    verdict = world.judge(deeds.was_marked)
    for name, times in sorted(deeds.done.items()):
        say(f"{times:4} x {name}")
    faults = {name: times for name, times in world.emulator.counts().items() if name.startswith("fault.")}
    say(f"jobs: {dict(verdict.jobs)}; faults of the service: {faults}")
    return verdict


def begin_runs(options: argparse.Namespace, airflow: Deployment, world: World, runs: dict[str, str]) -> int:
    """Start the next run of each Dag whose last one is over, with new files; give how many are not over."""
    going = 0
    for number in range(options.dags):
        dag = f"chaos_{number}"
        over = 0
        if dag in runs:
            over = int(runs[dag].rpartition("_")[2])
            state = airflow.rest.runs(dag)[runs[dag]]
            if state == "failed":
                # Marked, or out of tries: somebody would look, and clear it.
                airflow.rest.clear(dag, runs[dag], TASK)
            over -= state != "success"
            going += state != "success"
        if over == options.runs or (dag in runs and over < int(runs[dag].rpartition("_")[2])):
            continue
        world.land(str(number), options.batches)
        runs[dag] = f"run_{over + 1}"
        airflow.rest.trigger(dag, runs[dag])
        say(f"{dag} {runs[dag]}")
        going += 1
    return going


def connections(world: World) -> dict[str, str]:
    """Return the connections to the emulator."""
    extra = {"account_name": "chaos", "poll_interval": 1}
    found = {}
    for name, kind in (("ADLA_SCOPE_DEFAULT", "adla_scope"), ("ADLS_GEN1_DEFAULT", "adls_gen1")):
        value = {"conn_type": kind, "host": world.emulator.url, "extra": extra}
        found[f"AIRFLOW_CONN_{name}"] = json.dumps(value)
    return found


def wait_for(true: object, seconds: float, what: str | None) -> None:
    """Wait until something is true; if it has a name, it has to become true."""
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            if what is None:
                return
            raise AssertionError(f"{what}: not there after {seconds:.0f} s")
        time.sleep(1)


def say(line: str) -> None:
    """Tell how it goes."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
