"""One application runs all batches of a run, those that follow from each other, too."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.engines.spark import ApplicationEvents
from airflow_provider_scope.exceptions import SparkJobFailedError, StorageError
from airflow_provider_scope.spark import app
from airflow_provider_scope.spark import plan as plans
from airflow_provider_scope.spark.plan import EVENT
from tests.support.fake_submit import Fake, fake
from tests.support.values import a_file, an_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_scope.protocol.records import OffsetEntry

__all__ = ["fake"]

PYTHON = sys.executable
PROGRAM = f"""\
import json, pathlib, sys, time

def tell(**event):
    print({EVENT!r} + json.dumps(event), flush=True)

place = pathlib.Path(sys.argv[1]).parents[1] / "asked"
first, *more = sys.argv[sys.argv.index("main.py") + 1 :]
number = 0
while True:
    path = pathlib.Path(first.removeprefix("file://") + (f".{{number}}" if number else ""))
    while not path.exists():
        time.sleep(0.01)
    batches = json.loads(path.read_text())["batches"]
    with place.open("a") as file:
        file.write(f"{{batches}}\\n")
    if batches == [FAILS_AT]:
        error = {{"type": "SparkJobFailedError", "what": "no", "kept": "", "do": ""}}
        tell(event="failed", error=error)
        sys.exit(1)
    for seq in batches:
        tell(event="batch", seq=seq, what="rows", version=seq, seconds=0.1)
    if not batches or not more:
        break
    number += 1
    tell(event="waiting")
print("the end")
"""


class Application:
    """An application that does as ours, without Spark."""

    def __init__(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = fake
        monkeypatch.setattr("airflow_provider_scope.engines.application.SCRIPT", "main.py")
        self.program()

    def program(self, fails_at: int = -1) -> None:
        text = PROGRAM.replace("FAILS_AT", str(fails_at))
        (self.fake.folder / "program.py").write_text(text)
        script = f"{self.fake.folder}/bin/spark-submit"
        self.fake.program(
            "spark-submit", f'exec {PYTHON} -c "$(cat {self.fake.folder}/program.py)" "{script}" "$@"'
        )

    def run(self, more: Callable[[], list[OffsetEntry]] | None = None) -> None:
        self.fake.runner().run(self.fake.work(), [batch(0)], more)

    @property
    def asked(self) -> list[Any]:
        return [json.loads(line) for line in (self.fake.folder / "asked").read_text().splitlines()]

    @property
    def plans_left(self) -> list[str]:
        return sorted(one.name for one in (self.fake.folder / "checkpoint" / "plans").iterdir())


@pytest.fixture
def application(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Application:
    return Application(fake, monkeypatch)


def batch(seq: int) -> OffsetEntry:
    return an_entry(seq, a_file(f"{seq}.parquet"))


def test_an_application_takes_what_follows_until_nothing_does(application: Application) -> None:
    coming = iter([[batch(1)], [batch(2), batch(3)], []])

    application.run(lambda: next(coming))

    assert application.asked == [[0], [1], [2, 3], []]
    assert application.plans_left == []
    assert "the end" in application.fake.log_file.read_text()


def test_an_application_without_what_follows_waits_for_nothing(application: Application) -> None:
    application.run()

    assert application.asked == [[0]]
    assert application.plans_left == []


def test_what_goes_wrong_here_meanwhile_ends_the_application_and_is_raised(application: Application) -> None:
    def more() -> list[OffsetEntry]:
        raise StorageError("The log could not be read.", kept="all", do="look")

    with pytest.raises(StorageError, match="could not be read"):
        application.run(more)

    assert application.asked == [[0], []]
    assert "the end" in application.fake.log_file.read_text()
    assert application.plans_left == []


def test_a_batch_that_follows_and_fails_is_the_error(application: Application) -> None:
    application.program(fails_at=1)

    with pytest.raises(SparkJobFailedError, match=r"^no"):
        application.run(lambda: [batch(1)])

    assert application.asked == [[0], [1]]


def test_an_application_that_ends_before_it_takes_what_follows_has_failed(application: Application) -> None:
    def more() -> list[OffsetEntry]:
        application.fake.program("spark-submit", "exit 0")
        hook = runner._hook
        assert hook is not None
        hook._submit_sp.kill()
        return [batch(1)]

    runner = application.fake.runner()
    with pytest.raises(SparkJobFailedError):
        runner.run(application.fake.work(), [batch(0)], more)

    assert application.plans_left == []


def test_an_application_waits_for_its_next_plan_for_some_time(tmp_path: Path) -> None:
    path = plans.path(f"file://{tmp_path}/plan", 3)

    assert app._awaited(None, path, 0.1) is None  # type: ignore[arg-type] # a disk needs no session

    assert path.endswith("/plan.3")


def test_what_is_told_of_each_batch_is_a_warning_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[str] = []
    events = ApplicationEvents(reported.append)
    for seq, message in ((0, "late rows"), (1, "late rows"), (1, "no index"), (1, "no index")):
        events.take({"event": "notice", "seq": seq, "message": message})
        events.take({"event": "columns", "seq": seq, "message": message})

    assert [one.getMessage() for one in caplog.records] == ["batch 0: late rows", "batch 1: no index"]
    assert reported == ["batch 0: late rows", "batch 1: late rows", "batch 1: no index"]
