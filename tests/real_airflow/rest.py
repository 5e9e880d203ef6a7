"""What the tests ask of Airflow's REST interface."""

from __future__ import annotations

import time
from typing import Any

import requests

TRIES = 20


class Rest:
    """Airflow's REST interface, where everybody is an administrator."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._token = ""

    def ill(self) -> list[str]:
        """Return the parts that are not healthy, all of them if nobody answers."""
        parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        try:
            found = requests.get(f"{self.url}/api/v2/monitor/health", timeout=10).json()
        except (requests.RequestException, ValueError):
            return ["api-server"]
        return [part for part in parts if (found.get(part) or {}).get("status") != "healthy"]

    def dags(self) -> set[str]:
        """Return the ids of all Dags that were read."""
        return {dag["dag_id"] for dag in self.call("GET", "/dags?limit=1000")["dags"]}

    def unpause(self, dag_id: str) -> None:
        """Let a Dag run."""
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, run_id: str) -> None:
        """Start a run."""
        self.call("POST", f"/dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None})

    def runs(self, dag_id: str) -> dict[str, str]:
        """Return the state of each run of a Dag."""
        found = self.call("GET", f"/dags/{dag_id}/dagRuns?limit=1000")["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in found}

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return a task instance."""
        return self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Mark a task instance, as the button does."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self.call("PATCH", path, {"new_state": state})

    def clear(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Clear a task instance, as the button does."""
        body = {"dry_run": False, "task_ids": [task_id], "dag_run_id": run_id, "reset_dag_runs": True}
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", {**body, "only_failed": False})

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Ask, and ask again while the server is busy.

        :raises AssertionError: It is refused.
        """
        answer = None
        for left in reversed(range(TRIES)):
            try:
                if not self._token:
                    token = requests.get(f"{self.url}/auth/token", timeout=30)
                    self._token = token.json()["access_token"]
                headers = {"Authorization": f"Bearer {self._token}"}
                url = f"{self.url}/api/v2{path}"
                answer = requests.request(method, url, json=body, headers=headers, timeout=60)
                if answer.status_code < 500:
                    break
            except (requests.RequestException, ValueError):
                if not left:
                    raise
            time.sleep(1)
        if answer is None or not answer.ok:
            raise AssertionError(
                f"{method} {path}: {answer is not None and (answer.status_code, answer.text)}"
            )
        return answer.json() if answer.content else None
