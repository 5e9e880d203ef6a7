from __future__ import annotations

import pytest

from tests.crash.rules import RULES, Rule
from tests.crash.state_rules import STATE_RULES, StateRule


@pytest.mark.parametrize("rule", [*RULES, *STATE_RULES], ids=lambda rule: rule.name)
def test_a_rule_keeps_the_table_right_and_leaving_it_out_does_not(
    rule: Rule | StateRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rule = rule.check()
    rule.leave_out(monkeypatch)
    without_rule = rule.check()

    assert with_rule.failures == []
    assert getattr(without_rule, rule.finds), without_rule.failures
