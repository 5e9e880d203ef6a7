"""Java is looked for before Spark is started: real programs that answer as Java does, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_scope.engines.submit import check_java
from airflow_provider_scope.exceptions import JavaMissingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAY_OUT = (
    "Kept: everything; batches that were logged stay logged\n"
    "What to do: install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless) and point "
    "JAVA_HOME at it on the worker"
)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a program named java on PATH, and nothing else."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def make(answer: str, status: int = 0, folder: str = "bin") -> Path:
        place = tmp_path / folder / "java"
        place.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"echo '{line}' >&2\n" for line in answer.splitlines())
        place.write_text(f'#!/bin/sh\n[ "$*" = -version ] || exit 9\n{lines}exit {status}\n')
        place.chmod(0o755)
        return place

    return make


def refusal() -> str:
    with pytest.raises(JavaMissingError) as caught:
        check_java()
    assert str(caught.value).endswith("\n" + WAY_OUT)
    return caught.value.what


@pytest.mark.parametrize(
    "answer",
    [
        'openjdk version "17.0.19" 2026-04-21\nOpenJDK Runtime Environment (build 17.0.19+10)',
        'java version "21.0.2" 2024-01-16 LTS',
        'openjdk version "25" 2025-09-16',
        'openjdk version "17-ea" 2021-09-14',
    ],
)
def test_java_17_and_newer_are_taken(java, answer):
    java(answer)

    check_java()


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('java version "1.8.0_402"', 8),
        ('openjdk version "11.0.22" 2024-01-16', 11),
        ('openjdk version "16.0.2" 2021-07-20', 16),
    ],
)
def test_an_older_java_is_named_with_its_place_and_its_version(java, answer, version):
    place = java(answer)

    assert refusal() == f"Spark needs Java 17, but {place} is Java {version}."


def test_no_java_on_path_is_said(java):
    assert refusal() == "Spark needs Java 17, but there is no `java` on PATH."


def test_java_home_counts_before_path_as_it_does_for_spark(java, tmp_path, monkeypatch):
    java('openjdk version "17.0.19" 2026-04-21')
    old = java('java version "1.8.0_402"', folder="home/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    assert refusal() == f"Spark needs Java 17, but {old} is Java 8."


def test_a_java_home_without_a_java_is_said(java, tmp_path, monkeypatch):
    java('openjdk version "17.0.19" 2026-04-21')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    assert refusal() == f"Spark needs Java 17, but JAVA_HOME={tmp_path}/nowhere has no bin/java."


def test_a_java_that_fails_is_quoted(java):
    place = java("Error: could not open `/etc/java/jvm.cfg", status=1)

    assert refusal() == f"`{place} -version` did not answer: 'Error: could not open `/etc/java/jvm.cfg'."


def test_a_java_that_may_not_be_run_is_refused_without_a_stack(java, tmp_path, monkeypatch):
    place = java('openjdk version "17.0.19" 2026-04-21', folder="home/bin")
    place.chmod(0o644)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))

    assert refusal() == f"{place} could not be run: Permission denied."


def test_options_that_java_repeats_are_not_told_and_are_no_version(java):
    place = java(
        'Picked up JAVA_TOOL_OPTIONS: -Dpassword=hunter2 -Dx=version "17"\nError: no memory', status=1
    )

    assert refusal() == f"`{place} -version` did not answer: 'Error: no memory'."


def test_options_that_java_repeats_do_not_hide_its_version(java):
    java('Picked up _JAVA_OPTIONS: -Xmx1g -Dx=version "11"\nopenjdk version "17.0.19" 2026-04-21')

    check_java()
