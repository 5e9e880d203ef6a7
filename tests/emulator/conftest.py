"""An emulator with clock and helpers for its tests."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.support.emulators import emulator, start_emulator

if TYPE_CHECKING:
    from airflow_provider_scope.emulator import Emulator

__all__ = ["emulator", "start_emulator"]


MISSING = '@d = EXTRACT id : long FROM "/a.ss" USING Extractors.SStream();'
"""A script that fails when it runs."""


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Jobs:
    """Requests to the job service."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()

    def call(self, method: str, path: str, version: str | None = "2017-09-01-preview", **kwargs: Any) -> Any:
        params = {**({"api-version": version} if version else {}), **kwargs.pop("params", {})}
        return self.session.request(method, f"{self.url}{path}", params=params, timeout=30, **kwargs)

    def put(self, job_id: str | None = None, **fields: Any) -> Any:
        return self.call("PUT", f"/Jobs/{job_id or uuid.uuid4()}", json=body(**fields))

    def get(self, job_id: str) -> Any:
        return self.call("GET", f"/Jobs/{job_id}")

    def cancel(self, job_id: str) -> Any:
        return self.call("POST", f"/Jobs/{job_id}/CancelJob")

    def list(self, **params: str) -> Any:
        return self.call("GET", "/Jobs", params={f"${name}": value for name, value in params.items()})

    def names(self, **params: str) -> list[str]:
        return [item["name"] for item in self.list(**params).json()["value"]]

    def until(self, job_id: str, state: str = "Ended", seconds: float = 30) -> dict[str, Any]:
        """Ask until a job is in a state; scripts run in threads of their own."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job: dict[str, Any] = self.get(job_id).json()
            if job["state"] == state:
                return job
        raise AssertionError(f"job {job_id} is {job['state']}, not {state}")


class Files:
    """Requests to the file service."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()

    def call(self, method: str, op: str, path: str = "", *, data: Any = None, **params: Any) -> Any:
        return self.session.request(
            method,
            f"{self.url}/webhdfs/v1/{path}",
            params={"op": op, "api-version": "2018-09-01", **params},
            data=data,
            timeout=30,
            allow_redirects=False,
        )

    def create(self, path: str, data: bytes = b"", **params: Any) -> Any:
        return self.call("PUT", "CREATE", path, data=data, write="true", overwrite="true", **params)

    def list(self, path: str = "", **params: Any) -> Any:
        return self.call("GET", "LISTSTATUS", path, **params).json()["FileStatuses"]

    def names(self, path: str = "", **params: Any) -> list[str]:
        return [entry["pathSuffix"] for entry in self.list(path, **params)["FileStatus"]]

    def status(self, path: str) -> Any:
        return self.call("GET", "GETFILESTATUS", path).json()["FileStatus"]

    def read(self, path: str, **params: Any) -> Any:
        return self.call("GET", "OPEN", path, read="true", **params)


def body(
    *,
    name: str = "m_orders",
    script: str = '#DECLARE @x string = "1";',
    kind: str = "Scope",
    **fields: Any,
) -> dict[str, Any]:
    return {"name": name, "type": kind, "properties": {"type": kind, "script": script}, **fields}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorded(start_emulator: Any, clock: Clock) -> Emulator:
    """An emulator with a clock of its own."""
    return start_emulator(clock=clock)


@pytest.fixture
def jobs(recorded: Emulator) -> Jobs:
    return Jobs(recorded.url)


@pytest.fixture
def files(emulator: Emulator) -> Files:
    return Files(emulator.url)
