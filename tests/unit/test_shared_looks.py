"""The triggers of one connection look together: what they ask the manager for, and what each is told."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_provider_scope.engines.yarn import ADDRESS
from airflow_provider_scope.triggers import job as job_trigger
from airflow_provider_scope.triggers.job import JobTrigger

if TYPE_CHECKING:
    from collections.abc import Iterator

TASKS = 1000
INTERVAL = 1.0


class ResourceManager(ThreadingHTTPServer):
    """Answers as YARN's does, and counts its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.ended: set[str] = set()
        self.unknown: set[str] = set()
        self.fails = False


class Handler(BaseHTTPRequestHandler):
    server: ResourceManager

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.requests.append(url.path)
        if url.path.endswith("/info"):
            answer: dict[str, Any] = {"clusterInfo": {"startedOn": 1, "haState": "ACTIVE"}}
        else:
            tags = parse_qs(url.query)["applicationTags"][0].split(",")
            apps = [self.app(tag) for tag in tags if tag not in self.server.unknown]
            answer = {"apps": {"app": apps} if apps else {}}
        body = b"" if self.server.fails else json.dumps(answer).encode()
        self.send_response(503 if self.server.fails else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def app(self, tag: str) -> dict[str, Any]:
        state = (
            {"state": "FINISHED", "finalStatus": "SUCCEEDED"}
            if tag in self.server.ended
            else {"state": "RUNNING"}
        )
        return {"id": f"application_{tag}", "applicationTags": tag, "startedTime": 1, **state}

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    monkeypatch.setattr(job_trigger, "SHORTEST_HOLD_SECONDS", 0.1)
    with ResourceManager() as server:
        extra = {ADDRESS: f"http://127.0.0.1:{server.server_port}", "http_retries": 0}
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def a_trigger(number: int) -> JobTrigger:
    return JobTrigger(conn_id="cluster", job_id=f"Job-{number}", poll_interval=INTERVAL)


async def event_of(trigger: JobTrigger) -> dict[str, Any]:
    event = await anext(aiter(trigger.run()))
    payload: dict[str, Any] = event.payload
    return payload


def test_a_thousand_triggers_ask_for_all_their_jobs_together(manager: ResourceManager) -> None:
    async def wait() -> tuple[list[dict[str, Any]], float]:
        began = time.monotonic()
        waiting = [asyncio.create_task(event_of(a_trigger(number))) for number in range(TASKS)]
        async with asyncio.timeout(60):
            while len(manager.requests) < 4:  # noqa: ASYNC110 - the manager is a thread
                await asyncio.sleep(INTERVAL)
        intervals = (time.monotonic() - began) / INTERVAL
        asked = len(manager.requests)
        manager.ended = {f"job-{number}" for number in range(TASKS)}
        events = await asyncio.gather(*waiting)
        return events, asked / intervals

    events, asked_in_an_interval = asyncio.run(wait())

    assert [event["status"] for event in events] == ["succeeded"] * TASKS
    assert asked_in_an_interval <= 10


def test_each_trigger_is_told_of_its_own_job(manager: ResourceManager) -> None:
    manager.ended, manager.unknown = {"job-1"}, {"job-2"}

    async def wait() -> list[dict[str, Any]]:
        first, second = await asyncio.gather(event_of(a_trigger(1)), event_of(a_trigger(2)))
        return [first, second]

    first, second = asyncio.run(wait())

    assert (first["job_id"], first["status"]) == ("Job-1", "succeeded")
    assert (second["job_id"], second["status"]) == ("Job-2", "unknown to the service")
    assert job_trigger._LOOKS == {} or all(not looks for looks in job_trigger._LOOKS.values())


def test_a_manager_that_fails_is_asked_once_for_all_that_wait(
    manager: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.fails = True
    monkeypatch.setattr(job_trigger, "UNREACHABLE_SECONDS", 0.0)

    async def wait() -> list[dict[str, Any]]:
        triggers = [a_trigger(number) for number in range(20)]
        return [*await asyncio.gather(*map(event_of, triggers))]

    events = asyncio.run(wait())

    assert {event["status"] for event in events} == {"service unreachable"}
    assert len(manager.requests) <= 2, "the first one's own, and one for all that began at the same time"
