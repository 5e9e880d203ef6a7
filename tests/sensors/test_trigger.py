"""The trigger in a loop of its own: what it tells, when, and what it is stored as."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from airflow_provider_scope.exceptions import SourceRefusedError, SourceUnreadableError
from airflow_provider_scope.stores.local import LocalStorage
from airflow_provider_scope.stores.webhdfs import WebHdfsClient
from airflow_provider_scope.triggers.gen1_files import AdlsGen1FilesTrigger, described
from tests.scope.conftest import ROOT, start_emulator, world
from tests.sensors.conftest import START, put

__all__ = ["start_emulator", "world"]


def trigger(root, **more) -> AdlsGen1FilesTrigger:
    return AdlsGen1FilesTrigger(**{"source_roots": str(root), "deadline": START + 3_600, **more})


def events(one: AdlsGen1FilesTrigger, at_most: int = 10) -> list:
    """Run a trigger until it ends, or has fired a number of times."""

    async def run():
        found = []
        async for event in one.run():
            found.append(event.payload)
            if len(found) == at_most:
                break
        return found

    return asyncio.run(run())


def refused(self, root):
    raise SourceRefusedError(f"Could not list {root}.", kept="the table", do="give it the rights")
    yield


# ---- the waiting part of the sensor -----------------------------------------------------------------


def test_it_fires_once_when_the_files_are_there(tmp_path, passing):
    put(tmp_path, "a.ss")
    passing.then = [lambda: put(tmp_path, "b.ss")]

    found = events(trigger(tmp_path, min_files=2))

    assert found == [
        {
            "status": "arrived",
            "arrival": {
                "names": [f"file://{tmp_path}/a.ss", f"file://{tmp_path}/b.ss"],
                "count": 2,
                "bytes": 20,
                "newest": "2001-09-09T01:46:40.000000+00:00",
            },
            "text": f"2 files of 20 bytes in file://{tmp_path}",
        }
    ]
    assert passing.waits == [60.0, 0.0]


def test_it_holds_10_seconds_even_if_the_files_are_there_at_once(tmp_path, passing):
    put(tmp_path, "a.ss")

    assert events(trigger(tmp_path))[0]["status"] == "arrived"
    assert passing.waits == [10.0]


def test_it_looks_at_least_10_seconds_apart_and_for_the_last_time_at_the_deadline(tmp_path, passing):
    (found,) = events(trigger(tmp_path, poll_interval=1.0, deadline=START + 25))

    assert found == {
        "status": "timed out",
        "text": f"0 files of 0 bytes in file://{tmp_path}; waiting for 1 file",
    }
    assert passing.waits == [10.0, 10.0, 5.0, 0.0]


def test_a_folder_that_comes_later_is_waited_for(tmp_path, passing):
    passing.then = [lambda: put(tmp_path / "later", "a.ss")]

    assert events(trigger(tmp_path / "later"))[0]["status"] == "arrived"


def test_a_folder_that_must_be_there_is_a_failure_at_once(tmp_path, passing):
    (found,) = events(trigger(tmp_path / "later", missing_root="fail"))

    assert found["status"] == "failed"
    assert found["error"]["type"] == "SourceNotFoundError"
    assert "missing_root='wait'" in found["error"]["do"]
    assert passing.waits == [10.0]


def test_a_listing_that_fails_five_times_in_a_row_is_a_failure(tmp_path, passing, monkeypatch):
    monkeypatch.setattr(LocalStorage, "walk", refused)

    (found,) = events(trigger(tmp_path))

    assert found == {
        "status": "failed",
        "error": {
            "type": "SourceRefusedError",
            "what": f"Could not list file://{tmp_path}.",
            "kept": "the table",
            "do": "give it the rights",
        },
    }
    assert passing.waits == [10.0, 20.0, 40.0, 80.0, 0.0]


def test_a_connection_that_the_triggerer_does_not_find_is_named_and_asked_for_again(passing):
    (found,) = events(trigger(ROOT, adls_gen1_conn_id="of_workers"))

    assert found["error"]["type"] == "ConnectionMissingError"
    assert found["error"]["what"] == "Airflow has no connection 'of_workers'."
    assert passing.waits == [10.0, 20.0, 40.0, 80.0, 0.0]


def test_a_listing_that_works_again_starts_the_count_again(tmp_path, passing, monkeypatch):
    walk = LocalStorage.walk
    monkeypatch.setattr(LocalStorage, "walk", refused)
    works = lambda: monkeypatch.setattr(LocalStorage, "walk", walk)  # noqa: E731
    fails = lambda: monkeypatch.setattr(LocalStorage, "walk", refused)  # noqa: E731
    passing.then = [works, fails, works, lambda: put(tmp_path, "a.ss")]

    assert events(trigger(tmp_path))[0]["status"] == "arrived"
    assert passing.waits == [10.0, 60.0, 10.0, 60.0, 0.0]


@pytest.mark.parametrize("wrong", [{"source_patterns": ["("]}, {"min_files": 0}, {"modified_after": "soon"}])
def test_arguments_that_are_wrong_are_told_and_not_raised(tmp_path, passing, wrong):
    (found,) = events(trigger(tmp_path, **wrong))

    assert (found["status"], found["error"]["type"]) == ("failed", "InputError")


def test_an_error_that_is_not_ours_is_told_by_its_kind_alone(tmp_path, passing, monkeypatch):
    def broken(self, root):
        raise RuntimeError("s3cret")

    monkeypatch.setattr(LocalStorage, "walk", broken)
    (found,) = events(trigger(tmp_path))

    assert found["status"] == "failed"
    assert "s3cret" not in json.dumps(found)
    assert "The triggerer could not look for files" in found["error"]["what"]


# ---- over the wire ----------------------------------------------------------------------------------


def test_a_folder_that_is_missing_and_one_that_is_refused_are_told_apart(world, passing):
    world.open(denied_paths=("/landing/day2",))
    passing.then = [lambda: world.land(1), lambda: put(world.account / "landing/day2", "a.ss")]

    (found,) = events(trigger(ROOT, min_files=2))

    assert passing.waits[:3] == [60.0, 60.0, 10.0]
    assert (found["status"], found["error"]["type"]) == ("failed", "SourceRefusedError")


def test_a_page_that_fails_is_not_a_folder_with_fewer_files(world, passing, monkeypatch):
    monkeypatch.setattr("airflow_provider_scope.stores.calls.Repeating.pause", lambda *_: None)
    world.open(list_cap=1, faults=[{"kind": "status", "op": "liststatus", "skip": 1, "times": 3}])
    world.land(1, 2)

    (found,) = events(trigger(ROOT))

    assert found["arrival"]["count"] == 2
    assert passing.waits == [10.0, 0.0]


# ---- for an AssetWatcher ----------------------------------------------------------------------------


class Store(dict):
    """What Airflow injects into a watcher's trigger."""

    async def aget(self, key):
        return self.get(key)

    async def aset(self, key, value):
        self[key] = value


def test_without_a_deadline_it_fires_for_each_new_set_of_files(tmp_path, passing):
    put(tmp_path, "a.ss")
    nothing = lambda: None  # noqa: E731
    passing.then = [nothing, nothing, lambda: put(tmp_path, "b.ss")]

    found = events(trigger(tmp_path, deadline=None), at_most=2)

    assert [one["count"] for one in found] == [1, 2]
    assert set(found[0]) == {"names", "count", "bytes", "newest"}
    assert passing.waits == [10.0, 60.0, 60.0, 0.0]


def test_a_watcher_that_starts_again_does_not_tell_what_it_told_before(tmp_path, passing):
    def stop():
        raise asyncio.CancelledError

    put(tmp_path, "a.ss")
    first, second = trigger(tmp_path, deadline=None), trigger(tmp_path, deadline=None)
    first.asset_state_store = second.asset_state_store = Store()
    passing.then = [lambda: None, stop]
    with pytest.raises(asyncio.CancelledError):
        events(first)
    passing.then = [lambda: put(tmp_path, "b.ss")]

    (found,) = events(second, at_most=1)

    assert found["count"] == 2
    assert passing.waits == [10.0, 60.0, 60.0, 0.0]


def test_a_watcher_without_a_store_that_answers_still_tells(tmp_path, passing):
    class Broken:
        async def aget(self, key):
            raise RuntimeError

        aset = aget

    put(tmp_path, "a.ss")
    one = trigger(tmp_path, deadline=None)
    one.asset_state_store = Broken()
    passing.then = [lambda: None, lambda: put(tmp_path, "b.ss")]

    assert [event["count"] for event in events(one, at_most=2)] == [1, 2]


def test_a_watcher_never_tells_a_failure(tmp_path, passing, monkeypatch):
    walk = LocalStorage.walk
    monkeypatch.setattr(LocalStorage, "walk", refused)
    put(tmp_path, "a.ss")
    works = lambda: monkeypatch.setattr(LocalStorage, "walk", walk)  # noqa: E731
    passing.then = [*[lambda: None] * 8, works]

    (found,) = events(trigger(tmp_path, deadline=None), at_most=1)

    assert found["count"] == 1
    assert passing.waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0, 0.0]


def test_airflow_takes_it_for_an_asset(tmp_path):
    from airflow.sdk import Asset, AssetWatcher
    from airflow.serialization.encoders import encode_trigger
    from airflow.triggers.base import BaseEventTrigger

    one = trigger("/data/landing", deadline=None, modified_after="2026-01-01T00:00:00+00:00")

    asset = Asset("landing", watchers=[AssetWatcher(name="files", trigger=one)])

    (watcher,) = asset.watchers
    assert isinstance(watcher.trigger, BaseEventTrigger)
    stored = encode_trigger(watcher.trigger)
    again = AdlsGen1FilesTrigger(**one.serialize()[1])
    assert encode_trigger(again) == stored
    assert BaseEventTrigger.hash(*one.serialize()) == BaseEventTrigger.hash(*again.serialize())


# ---- what it is stored as, and how it ends ----------------------------------------------------------


def test_it_is_stored_as_places_and_numbers():
    one = AdlsGen1FilesTrigger(source_roots=("/a", "/b"), deadline=7.5, poll_interval=3)

    assert one.serialize() == (
        "airflow_provider_scope.triggers.gen1_files.AdlsGen1FilesTrigger",
        {
            "source_roots": ["/a", "/b"],
            "source_patterns": [r".*\.ss$"],
            "min_files": 1,
            "min_bytes": 0,
            "modified_after": None,
            "newer_than_checkpoint": None,
            "stable_for_seconds": 30.0,
            "missing_root": "wait",
            "adls_gen1_conn_id": "adls_gen1_default",
            "poll_interval": 10.0,
            "deadline": 7.5,
        },
    )


@pytest.mark.parametrize("text", ["long " * 2_000, "é" * 9_000])
def test_an_event_stays_small_however_long_an_error_is(text):
    event = described(SourceUnreadableError(text, kept=text, do=text))

    assert len(json.dumps(event)) < 4096
    assert event["what"][:20] == text[:20]


def test_a_cancelled_trigger_ends_its_listing(world, monkeypatch):
    world.open()
    world.land(1)
    listing, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    listed = []
    walk = WebHdfsClient.walk

    def slow(self, root):
        (file,) = walk(self, root)
        try:
            for number in range(100):
                listing.set()
                go_on.wait(30)
                listed.append(number)
                yield file
        finally:
            ended.set()

    monkeypatch.setattr(WebHdfsClient, "walk", slow)

    async def run():
        task = asyncio.create_task(anext(trigger(ROOT).run()))
        await asyncio.to_thread(listing.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        return await asyncio.to_thread(ended.wait, 30)

    assert asyncio.run(run())
    assert listed == [0]
