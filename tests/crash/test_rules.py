from __future__ import annotations

import pytest

from tests.crash.rules import RULES, Rule
from tests.crash.scope_rules import RULES as SCOPE_RULES
from tests.crash.state_rules import STATE_RULES, StateRule


@pytest.mark.parametrize(
    "rule", [*RULES, *SCOPE_RULES], ids=lambda rule: f"{type(rule).__name__}, {rule.name}"
)
def test_leaving_a_rule_out_is_noticed_in_a_schedule_that_it_keeps_right(rule: Rule) -> None:
    with pytest.MonkeyPatch.context() as patch:
        rule.leave_out(patch)
        seed = rule.search()

    assert seed is not None
    assert rule.found(seed).failures == []


@pytest.mark.parametrize("rule", STATE_RULES, ids=lambda rule: rule.name)
def test_a_rule_keeps_the_state_right_and_leaving_it_out_does_not(
    rule: StateRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rule = rule.check()
    rule.leave_out(monkeypatch)
    without_rule = rule.check()

    assert with_rule.failures == []
    assert getattr(without_rule, rule.finds), without_rule.failures
