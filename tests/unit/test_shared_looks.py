"""The triggers of one connection look together: what they ask the manager for, and what each is told."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.engines.yarn import ADDRESS
from airflow_provider_scope.triggers import job as job_trigger
from airflow_provider_scope.triggers.job import JobTrigger
from tests.client.server import Reply, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.client.server import Asked, Server

TASKS = 1000
INTERVAL = 1.0


class ResourceManager:
    """Answers as YARN's does."""

    def __init__(self, server: Server) -> None:
        server.answers = self.reply
        self.requests = server.asked
        self.ended: set[str] = set()
        self.unknown: set[str] = set()
        self.fails = False

    def reply(self, asked: Asked) -> Reply:
        if self.fails:
            return Reply(503)
        if asked.path.endswith("/info"):
            return Reply(body={"clusterInfo": {"startedOn": 1, "haState": "ACTIVE"}})
        tags = asked.query["applicationTags"].split(",")
        apps = [self.app(tag) for tag in tags if tag not in self.unknown]
        return Reply(body={"apps": {"app": apps} if apps else {}})

    def app(self, tag: str) -> dict[str, Any]:
        state = (
            {"state": "FINISHED", "finalStatus": "SUCCEEDED"} if tag in self.ended else {"state": "RUNNING"}
        )
        return {"id": f"application_{tag}", "applicationTags": tag, "startedTime": 1, **state}


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResourceManager]:
    monkeypatch.setattr(job_trigger, "SHORTEST_HOLD_SECONDS", 0.1)
    with serving() as server:
        extra = {ADDRESS: server.url, "http_retries": 0}
        connection = {"conn_type": "spark", "host": "yarn", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
        yield ResourceManager(server)


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
        requests = len(manager.requests)
        manager.ended = {f"job-{number}" for number in range(TASKS)}
        events = await asyncio.gather(*waiting)
        return events, requests / intervals

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


def test_a_trigger_goes_on_when_another_one_of_its_job_has_fired(manager: ResourceManager) -> None:
    async def wait() -> list[dict[str, Any]]:
        first, second = a_trigger(1), a_trigger(1)
        first.deadline = time.time() + INTERVAL / 2
        waiting = asyncio.create_task(event_of(second))
        events = [await event_of(first)]
        requests = len(manager.requests)
        async with asyncio.timeout(60):
            while len(manager.requests) < requests + 2 and not waiting.done():  # noqa: ASYNC110 - as above
                await asyncio.sleep(INTERVAL / 10)
        manager.ended = {"job-1"}
        return [*events, await waiting]

    first, second = asyncio.run(wait())

    assert (first["status"], second["status"]) == ("deadline", "succeeded")


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


def following(folder: Path, **more: Any) -> JobTrigger:
    """Return a trigger that looks at what an application tells of its newest plan."""
    arguments = {"poll_interval": 60.0, "events": f"file://{folder}/plan.1.events", **more}
    return JobTrigger(conn_id="cluster", job_id="Job-1", **arguments)


WAITS = '{"event": "batch"}\n{"event": "waiting"}\n'


@pytest.mark.parametrize("before", ["", '{"event": "started"}\n{"event": "wai', '{"event": "batch"}\n'])
def test_a_trigger_fires_when_its_application_waits_for_the_next_plan(
    manager: ResourceManager, tmp_path: Path, before: str
) -> None:
    (tmp_path / "plan.1.events").write_text(before)
    (tmp_path / "plan.events").write_text(WAITS)  # of a plan that was answered

    async def wait() -> tuple[bool, dict[str, Any]]:
        waiting = asyncio.create_task(event_of(following(tmp_path)))
        await asyncio.sleep(0.5)
        was_early = waiting.done()
        (tmp_path / "plan.1.events").write_text(WAITS)
        return was_early, await asyncio.wait_for(waiting, 10)

    was_early, event = asyncio.run(wait())

    assert not was_early
    assert event["status"] == "waits for its next plan"
    assert len(manager.requests) <= 2, "the manager is not asked more often for that"


@pytest.mark.parametrize("fault", ["no connection", "no file", "no answer"])
def test_a_file_that_cannot_be_read_leaves_the_trigger_to_the_manager(
    manager: ResourceManager, tmp_path: Path, fault: str
) -> None:
    path = tmp_path / "plan.1.events"
    if fault == "no file":
        path.mkdir()
    elif fault == "no answer":
        os.mkfifo(path)  # whoever reads it waits for somebody who writes
    conn_id = "missing" if fault == "no connection" else None

    async def wait() -> dict[str, Any]:
        trigger = following(tmp_path, poll_interval=INTERVAL, storage_conn_id=conn_id)
        waiting = asyncio.create_task(event_of(trigger))
        await asyncio.sleep(0.5)
        manager.ended = {"job-1"}
        event = await asyncio.wait_for(waiting, 10)
        if fault == "no answer":
            path.write_text(WAITS)
        return event

    assert asyncio.run(wait())["status"] == "succeeded"


def test_a_trigger_that_was_stored_without_such_a_file_is_made_again() -> None:
    _, arguments = a_trigger(1).serialize()
    old = {name: value for name, value in arguments.items() if name not in ("events", "storage_conn_id")}

    assert JobTrigger(**old).serialize()[1] == arguments
    assert JobTrigger(**following(Path("/x")).serialize()[1]).events == "file:///x/plan.1.events"
