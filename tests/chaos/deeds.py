"""What is done to Airflow while it works. Each deed mends what it broke, and takes as long as that takes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.real_airflow.deployment import Deployment

TASK = "load"
TRIGGERERS = ("triggerer 1", "triggerer 2")
FREEZE_SECONDS = 25.0
"""Longer than Airflow waits for a sign of life; see the settings in ``__main__``."""
GRACE_SECONDS = 20.0
"""How long after a clear an old trigger may still do what the mark before asked for."""
BUSY = ("queued", "running", "deferred", "up_for_retry")


@dataclass
class Deeds:
    """Does things to a deployment.

    :param runs: Dag -> its newest run.
    """

    airflow: Deployment
    runs: dict[str, str]
    random: random.Random
    say: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    _marks: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def all(self) -> Sequence[tuple[str, Callable[[], bool]]]:
        """Return each deed with its name; a deed tells whether there was anything to do it to."""
        return (
            ("triggerer killed -9", self.kill_triggerer),
            ("triggerer stopped", self.stop_triggerer),
            ("triggerer frozen and thawed", self.freeze_triggerer),
            ("task's process killed -9", lambda: self.kill_worker(supervisor=False)),
            ("worker killed -9", lambda: self.kill_worker(supervisor=True)),
            ("worker frozen and thawed", self.freeze_worker),
            ("scheduler and its workers killed -9", self.kill_scheduler),
            ("task cleared", self.clear),
            ("task cleared without a triggerer", self.clear_without_triggerer),
            ("task marked failed, then cleared", self.mark_failed),
        )

    def was_marked(self, dag: str, moment: float) -> bool:
        """Return whether a Dag's task was marked as failed then."""
        return any(begin <= moment <= end for begin, end in self._marks[f"chaos_{dag}"])

    def kill_triggerer(self) -> bool:
        name = self.random.choice(TRIGGERERS)
        self.airflow.kill(name)
        time.sleep(self.random.uniform(0, 5))
        self.airflow.run("triggerer", process=name)
        return True

    def stop_triggerer(self) -> bool:
        name = self.random.choice(TRIGGERERS)
        self.airflow.terminate(name)
        self.airflow.run("triggerer", process=name)
        return True

    def freeze_triggerer(self) -> bool:
        return self._freeze(self.airflow.tree(self.random.choice(TRIGGERERS)))

    def kill_worker(self, *, supervisor: bool) -> bool:
        found = self._tasks(supervisor=supervisor)
        for one in found:
            with suppress(psutil.Error):
                one.kill()
                return True
        return False

    def freeze_worker(self) -> bool:
        found = self._tasks(supervisor=True)
        return bool(found) and self._freeze([found[0], *found[0].children(recursive=True)])

    def kill_scheduler(self) -> bool:
        # As when a machine goes down. Workers that outlive it hold its database session and its locks.
        for one in reversed(self.airflow.tree("scheduler")):
            with suppress(psutil.Error):
                one.kill()
        self.airflow.kill("scheduler")
        self.airflow.run("scheduler")
        return True

    def clear(self) -> bool:
        return self._with_busy_run(lambda dag, run: self.airflow.rest.clear(dag, run, TASK))

    def clear_without_triggerer(self) -> bool:
        for name in TRIGGERERS:
            self.airflow.kill(name)
        cleared = self.clear()
        time.sleep(self.random.uniform(0, 10))
        for name in TRIGGERERS:
            self.airflow.run("triggerer", process=name)
        return cleared

    def mark_failed(self) -> bool:
        def mark(dag: str, run: str) -> None:
            began = time.time()
            self.airflow.rest.mark(dag, run, TASK, "failed")
            time.sleep(self.random.uniform(0, 15))
            self.airflow.rest.clear(dag, run, TASK)
            self._marks[dag].append((began, time.time() + GRACE_SECONDS))

        return self._with_busy_run(mark)

    def _with_busy_run(self, deed: Callable[[str, str], Any]) -> bool:
        """Do something to a task that is not over, to one whose job a triggerer watches if there is one."""
        states = {dag: self.airflow.rest.task(dag, run, TASK)["state"] for dag, run in self.runs.items()}
        busy = [dag for dag, state in states.items() if state in BUSY]
        if not busy:
            return False
        dag = self.random.choice([dag for dag in busy if states[dag] == "deferred"] or busy)
        self.say(f"  {dag} {self.runs[dag]}, {states[dag]}")
        deed(dag, self.runs[dag])
        return True

    def _tasks(self, *, supervisor: bool) -> list[psutil.Process]:
        """Return the processes that run a task now, or those that watch over them, in random order."""
        found = []
        for one in self.airflow.tree("scheduler")[1:]:
            with suppress(psutil.Error):
                children = one.children()
                title = " ".join(one.cmdline())
                watches = title.startswith("airflow worker -- LocalExecutor") and bool(children)
                if watches:
                    found.append(one if supervisor else children[0])
        self.random.shuffle(found)
        return found

    def _freeze(self, processes: Sequence[psutil.Process]) -> bool:
        for one in processes:
            with suppress(psutil.Error):
                one.suspend()
        time.sleep(FREEZE_SECONDS)
        for one in processes:
            with suppress(psutil.Error):
                one.resume()
        return True
