from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.scope_emulator import kill_emulator
from tests.crash.scope_exhaustive import SCENARIOS, ScopeKiller, kill_once, kill_twice
from tests.crash.scope_rules import LIMIT, RULES, Rule
from tests.crash.scope_schedules import KINDS, play_many
from tests.crash.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.scope_exhaustive import ScopeScenario


@pytest.fixture(scope="module")
def killer() -> Iterator[ScopeKiller]:
    with ScopeKiller() as one:
        yield one


def at_jobs(points: list[Any]) -> list[Any]:
    return sorted(random.Random(4).sample(points, 1))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_run_that_was_killed_and_run_again_ends_like_one_that_was_not(
    scenario: ScopeScenario, killer: ScopeKiller
) -> None:
    found = kill_once(scenario.name, killer, at_jobs)

    assert (found.lost, found.doubled, found.failures) == (0, 0, [])
    assert 1 <= found.kill_points <= 2


def test_a_rerun_that_was_killed_too_and_run_again_ends_like_one_that_was_not(killer: ScopeKiller) -> None:
    found = kill_twice("refresh over a running job", killer, 4, seed=2)

    assert (found.lost, found.doubled, found.failures) == (0, 0, [])


@pytest.mark.parametrize("kind", KINDS)
def test_runs_and_jobs_that_overtake_each_other_and_die_lose_and_double_nothing(kind: str) -> None:
    found = play_many(kind, range(10_000, 10_040))

    assert (found.lost, found.doubled, found.failures) == (0, 0, [])
    assert found.kill_points > 0


@pytest.mark.loads
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_leaving_a_rule_out_is_noticed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rule.leave_out(monkeypatch)

    played, found = rule.search()

    assert played <= LIMIT
    assert getattr(found, rule.finds)


def test_an_emulator_that_was_killed_in_the_midst_of_a_job_and_started_again_runs_it_once() -> None:
    found, jobs = kill_emulator("rerun", [(20, False)], refresh=False)

    assert found == Tally(kill_points=1)
    assert jobs["succeeded"] == 2
