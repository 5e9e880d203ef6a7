from __future__ import annotations

import pytest

from tests.crash.scope_rules import LIMIT, RULES, Rule


@pytest.mark.loads
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_leaving_a_rule_out_is_noticed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rule.leave_out(monkeypatch)

    played, found = rule.search()

    assert played <= LIMIT
    assert getattr(found, rule.finds)
