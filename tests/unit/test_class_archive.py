"""The archive of Java's classes: made once, used then, and never a reason to fail.

``spark-submit`` is a program that does to the archive what Java does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_scope.core.plan import EVENT
from airflow_provider_scope.engines import class_archive
from airflow_provider_scope.engines.submit import SubmitHook
from airflow_provider_scope.exceptions import SparkJobFailedError

SETTING = "AIRFLOW__AIRFLOW_PROVIDER_SCOPE__CLASS_ARCHIVES"
JAVA = "/usr/bin/java\nopenjdk version 17.0.15"
OPTIONS = "spark.driver.extraJavaOptions"
AS_JAVA = r"""
for one; do case "$one" in *.conf) conf="$one";; esac; done
options=$(grep extraJavaOptions "$conf" | tr -d '\\')
echo "options: ${options#*=}"
made=${options#*ArchiveClassesAtExit=}; made=${made%% *}
"""
WRITES = 'case "$options" in *AtExit=*) echo classes > "$made";; esac\n'
STARTED = f'echo \'{EVENT}{{"event": "started"}}\'\n'
NO_SPACE = 'case "$options" in *AtExit=*) echo "Error occurred during initialization of VM"; exit 1;; esac\n'
CRASHES = 'case "$options" in *SharedArchiveFile=*) kill -BUS $$;; esac\n'


class Worker:
    """A machine with a Spark of one jar, a cache folder, and runs of a program in place of Spark."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.cache = home / "cache"
        self.jar = home / "spark" / "jars" / "spark-core.jar"
        self.jar.parent.mkdir(parents=True)
        self.jar.write_text("jar")
        self.events: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.spark_submit(WRITES)

    def spark_submit(self, text: str) -> None:
        place = self.home / "bin" / "spark-submit"
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/sh\n{AS_JAVA}\n{text}\n")
        place.chmod(0o755)

    def run(self, conf: dict[str, str] | None = None, java: str = JAVA, conn_id: str | None = None) -> str:
        """Run an application; give Java's options in it, without those that only make it quiet."""
        log = self.home / "spark.log"
        log.unlink(missing_ok=True)
        hook = SubmitHook(
            conn_id=conn_id,
            conf=conf or {},
            log_file=log,
            on_event=self.events.append,
            java_version=java,
            report=self.told.append,
            packages="io.delta:delta",
        )
        hook.run("main.py", [])
        return self.options()

    def options(self) -> str:
        lines = (self.home / "spark.log").read_text().splitlines()
        last = [line for line in lines if line.startswith("options: ")][-1]
        return last.removeprefix("options: ").partition(" -Xlog")[0].replace(str(self.cache), "CACHE")

    def made(self) -> Path:
        """Run until there is an archive."""
        self.run()
        self.run()
        return self.archive()

    def archive(self) -> Path:
        (found,) = self.cache.glob("*.jsa")
        return found

    def names(self) -> list[str]:
        return sorted(file.name.partition(".")[2] for file in self.cache.iterdir() if file.name != "lock")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    made = Worker(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv(SETTING, str(made.cache))
    return made


def test_the_second_run_makes_what_the_third_one_uses(worker):
    first, second = worker.run(), worker.run()
    archive = worker.archive()

    assert first == ""
    assert second.startswith("-XX:ArchiveClassesAtExit=CACHE/")
    assert second.endswith(".tmp")
    assert worker.run() == f"-XX:SharedArchiveFile=CACHE/{archive.name} -XX:+VerifySharedSpaces"
    assert archive.read_text() == "classes\n"
    (told,) = worker.told
    assert told == (
        f"this run stores Java's classes in {worker.cache}, so that later runs start faster; once, this "
        "takes 10 s or more at the end of the run"
    )
    assert worker.cache.stat().st_mode & 0o777 == 0o700


def test_java_says_nothing_of_the_archive_in_the_log(worker):
    worker.made()

    worker.run()

    assert "-Xlog:cds=off -Xlog:cds+dynamic=off" in (worker.home / "spark.log").read_text()


def test_options_of_the_user_are_kept_in_front(worker):
    conf = {OPTIONS: "-Dtheir=own -XX:+UseParallelGC"}
    worker.run(conf)

    assert worker.run(conf).startswith("-Dtheir=own -XX:+UseParallelGC -XX:ArchiveClassesAtExit=")
    assert worker.run(conf).startswith("-Dtheir=own -XX:+UseParallelGC -XX:SharedArchiveFile=")


@pytest.mark.parametrize(
    "conf",
    [
        {OPTIONS: "-XX:SharedArchiveFile=/theirs.jsa"},
        {OPTIONS: "-Xshare:off"},
        {OPTIONS: "-javaagent:/agent.jar"},
        {"spark.driver.defaultJavaOptions": "-XX:ArchiveClassesAtExit=/theirs.jsa"},
    ],
)
def test_who_has_an_archive_or_an_agent_keeps_it_alone(worker, conf):
    for _ in range(3):
        assert worker.run(conf) == conf.get(OPTIONS, "")
    assert not worker.cache.exists()


def test_one_setting_switches_it_off(worker, monkeypatch):
    worker.made()
    monkeypatch.setenv(SETTING, "Off")

    assert worker.run() == ""


def test_an_application_on_a_cluster_has_none(worker, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", "spark://host:7077")

    for _ in range(3):
        assert worker.run(conn_id="cluster") == ""
    assert not worker.cache.exists()


# ---- what goes wrong ---------------------------------------------------------------------------------


def test_an_archive_that_was_cut_off_is_not_given_to_java_and_made_anew(worker):
    archive = worker.made()
    archive.write_text("cla")

    assert worker.run() == ""
    assert worker.names() == ["tried"]

    a_day_later(worker)
    assert "AtExit" in worker.run()
    assert worker.archive().read_text() == "classes\n"


def test_java_that_dies_of_the_archive_is_started_again_without(worker):
    worker.made()
    worker.spark_submit(CRASHES + STARTED)

    assert worker.run() == ""
    assert worker.events == [{"event": "started"}]
    assert worker.names() == ["tried"]
    assert worker.run() == ""


def test_java_that_dies_when_the_application_works_fails_but_the_archive_is_gone(worker):
    worker.made()
    worker.spark_submit(STARTED + CRASHES)

    with pytest.raises(SparkJobFailedError):
        worker.run()

    assert worker.run() == ""


def test_java_that_does_not_start_with_the_options_is_started_again_without(worker):
    worker.run()
    worker.spark_submit(NO_SPACE + STARTED)

    assert worker.run() == ""
    assert worker.run() == ""


def test_a_full_disk_is_no_failure_of_an_application_that_is_done(worker):
    worker.run()
    worker.spark_submit(STARTED + WRITES + NO_SPACE)

    assert "AtExit" in worker.run()
    assert worker.events == [{"event": "started"}]
    assert worker.names() == ["tried"]


def test_a_disk_with_little_space_is_left_alone(worker, monkeypatch):
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - as shutil has it
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10, 9, 1))

    assert [worker.run() for _ in range(3)] == ["", "", ""]


def test_an_application_that_fails_makes_none(worker):
    worker.run()
    worker.spark_submit(WRITES + "exit 1")

    with pytest.raises(SparkJobFailedError):
        worker.run()

    assert worker.names() == ["tried"]


def a_file_in_its_place(worker: Worker) -> None:
    worker.cache.write_text("a file")


def writable_by_others(worker: Worker) -> None:
    worker.cache.mkdir()
    worker.cache.chmod(0o777)


@pytest.mark.parametrize("bad", [a_file_in_its_place, writable_by_others])
def test_a_folder_that_will_not_do_is_done_without(worker, bad):
    bad(worker)

    assert [worker.run() for _ in range(3)] == ["", "", ""]


def test_a_folder_with_a_blank_is_done_without(worker, monkeypatch):
    monkeypatch.setenv(SETTING, str(worker.cache / "with a blank"))

    assert [worker.run() for _ in range(3)] == ["", "", ""]


def test_a_spark_without_a_folder_of_jars_is_done_without(worker):
    shutil.rmtree(worker.jar.parent)

    assert [worker.run() for _ in range(3)] == ["", "", ""]


def test_what_a_killed_run_left_is_no_archive_and_is_cleaned_up(worker):
    worker.run()
    (worker.cache / "gone.123.tmp").write_text("half")

    assert "AtExit" in worker.run()

    assert not list(worker.cache.glob("*.tmp"))


def test_one_at_a_time_makes_an_archive(worker):
    worker.run()
    with (worker.cache / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert worker.run() == ""
    assert "AtExit" in worker.run()


# ---- which archive -----------------------------------------------------------------------------------


def other_java(worker: Worker) -> dict[str, Any]:
    return {"java": JAVA.replace("17.0.15", "17.0.16")}


def other_jar(worker: Worker) -> dict[str, Any]:
    worker.jar.write_text("another jar")
    return {}


def more_jars(worker: Worker) -> dict[str, Any]:
    worker.jar.with_name("more.jar").touch()
    return {}


def other_collector(worker: Worker) -> dict[str, Any]:
    return {"conf": {OPTIONS: "-XX:+UseSerialGC"}}


def large_heap(worker: Worker) -> dict[str, Any]:
    return {"conf": {"spark.driver.memory": "33000m"}}


@pytest.mark.parametrize("change", [other_java, other_jar, more_jars, other_collector, large_heap])
def test_another_java_or_other_classes_have_another_archive(worker, change):
    archive = worker.made()
    arguments = change(worker)

    assert archive.name not in worker.run(**arguments)
    assert "AtExit" in worker.run(**arguments)
    assert archive.name not in worker.run(**arguments)


def a_property(worker: Worker) -> dict[str, Any]:
    return {"conf": {OPTIONS: "-Dpassword=hunter22"}}


def more_memory(worker: Worker) -> dict[str, Any]:
    return {"conf": {"spark.driver.memory": "16000m"}}


@pytest.mark.parametrize("change", [a_property, more_memory])
def test_what_changes_no_class_shares_the_archive(worker, change):
    archive = worker.made()

    assert archive.name in worker.run(**change(worker))


# ---- how many ----------------------------------------------------------------------------------------


def of_java(worker: Worker, number: int) -> str:
    """Run three times with a version of Java; give the options of the last."""
    return [worker.run(java=f"java {number}") for _ in range(3)][-1]


def test_archives_that_are_used_stay_and_there_are_not_more_than_three(worker):
    assert all("SharedArchiveFile" in of_java(worker, number) for number in range(3))

    assert of_java(worker, 3) == ""
    assert len(list(worker.cache.glob("*.jsa"))) == 3


def test_an_archive_that_nobody_uses_makes_room(worker):
    for number in range(3):
        of_java(worker, number)
    oldest = next(iter(worker.cache.glob("*.jsa")))
    os.utime(oldest, (time.time() - 8 * 86_400,) * 2)

    assert "SharedArchiveFile" in of_java(worker, 3)
    assert not oldest.exists()
    assert len(list(worker.cache.glob("*.jsa"))) == 3


def a_day_later(worker: Worker) -> None:
    for file in worker.cache.glob("*.tried"):
        os.utime(file, (time.time() - 90_000,) * 2)


# ---- where -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c"}, "/c/airflow-provider-scope"),
        ({"XDG_CACHE_HOME": "relative"}, "/h/.cache/airflow-provider-scope"),
        ({"XDG_CACHE_HOME": ""}, "/h/.cache/airflow-provider-scope"),
        ({SETTING: "/s"}, "/s"),
        ({SETTING: "~/s"}, "/h/s"),
        ({SETTING: "off"}, None),
    ],
)
def test_the_folder_is_that_of_the_setting_else_of_the_users_cache(monkeypatch, variables, expected):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv(SETTING)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert class_archive.folder() == (Path(expected) if expected else None)
