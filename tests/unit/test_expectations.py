"""Rules for rows: what is refused of them, what their levels mean, and when too many rows break one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_scope.exceptions import InputError, SqlError
from airflow_provider_scope.expectations import RuleCount, lines, over_share, relaxed, total
from airflow_provider_scope.operators.delta_ingest import DeltaIncrementalIngestOperator
from airflow_provider_scope.spark.plan import Plan, decode, encode
from airflow_provider_scope.specs import CdfSource, Cursor, Expectation, FileSource, TableSource, TableSpec

FILES = FileSource(roots="/in", format="csv")
ASIDE = replace(FILES, bad_records="quarantine")
TABLE = TableSource(table="/source", cursor=Cursor(column="id"))
FEED = CdfSource(table="/source")


def load(source: Any, expect: Any, **more: Any) -> Any:
    return DeltaIncrementalIngestOperator(
        task_id="load", delta_location="/t", source=source, table=TableSpec(expect=expect), **more
    )


@pytest.mark.parametrize(
    ("broken", "rows", "share", "is_over"),
    [
        (0, 0, 0, False),
        (0, 10, 0, False),
        (1, 10**9, 0, True),
        (1, 100, 0.01, False),
        (3, 300, 0.01, False),
        (2, 199, 0.01, True),
        (29, 100, 0.29, False),
        (30, 100, 0.29, True),
        (10, 10, 1, False),
        (10, 10, None, False),
    ],
)
def test_a_share_passes_up_to_its_limit_and_no_further(
    broken: int, rows: int, share: float | None, is_over: bool
) -> None:
    rules = {"named": Expectation("a IS NOT NULL", on_violation="warn", max_share=share)}

    assert ("named" in over_share(rules, {"named": RuleCount(broken, rows)})) == is_over


def test_each_rule_above_its_share_is_named_as_it_was_written() -> None:
    rules = {
        "named": Expectation("a > ''", on_violation="warn", max_share=0.01),
        "fine": Expectation("b > 0", on_violation="warn", max_share=0.5),
        "positive": Expectation("c > 0", max_share=0.2),
    }

    broken = {"named": 1_200, "fine": 2, "positive": 901}
    counts = {name: RuleCount(count, 4_000) for name, count in broken.items()}

    more = "which is more than max_share="
    assert over_share(rules, counts) == {
        "named": f"1,200 of 4,000 rows (30%) break the rule 'named' (a > ''), {more}0.01",
        "positive": f"901 of 4,000 rows (22.5%) break the rule 'positive' (c > 0), {more}0.2",
    }


def test_a_rule_without_a_level_follows_the_source() -> None:
    rules = {
        "plain": Expectation("a"),
        "warns": Expectation("a", on_violation="warn"),
        "fails": Expectation("a", on_violation="fail"),
    }
    spec = TableSpec(expect=rules)
    plan = Plan(pipeline="p", table="t", checkpoint="c", batches=(), source=FILES, spec=spec)
    sorting, of_table = replace(plan, source=ASIDE), replace(plan, source=TABLE)

    assert [*plan.rules("fail")] == [*of_table.rules("fail")] == ["plain", "fails"]
    assert ([*sorting.rules("quarantine")], [*sorting.rules("fail")]) == (["plain"], ["fails"])
    assert decode(encode(sorting)) == sorting


def test_what_a_rule_refuses_is_relaxed_in_two_steps_so_that_both_are_told() -> None:
    rules = {
        "plain": Expectation("a", max_share=0.1),
        "warns": Expectation("a", on_violation="warn", max_share=0),
    }

    levels = relaxed(rules, "quarantine")
    limits = relaxed(levels, "quarantine")

    assert [rule.on_violation for rule in levels.values()] == ["quarantine", "warn"]
    assert [rule.max_share for rule in levels.values()] == [0.1, 0]
    assert [rule.max_share for rule in limits.values()] == [None, None]
    assert relaxed(limits, "quarantine") == limits


@pytest.mark.parametrize("source", [FILES, TABLE, FEED])
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {"on_violation": "quarantine"},
            r"expect\['r'\].on_violation='quarantine' is not valid: expected 'warn'",
        ),
        ({"max_share": 0.1}, r"expect\['r'\].max_share=0.1 is not valid: expected None without on_violation"),
    ],
)
def test_what_needs_a_quarantine_is_refused_where_there_is_none(
    source: Any, rule: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        load(source, {"r": Expectation("a > 0", **rule)})


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {"on_violation": "fail", "max_share": 0},
            "max_share=0 is not valid: expected None with on_violation",
        ),
        ({"on_violation": "drop"}, "expected one of 'warn', 'quarantine', 'fail'"),
        ({"on_violation": "warn", "max_share": 5}, "expected a share from 0 to 1"),
        ({"on_violation": "warn", "max_share": True}, "max_share=True"),
        ({"on_violaton": "warn"}, r"expect\['r'\] has unknown keys: on_violaton"),
        ({"predicate": " "}, "predicate=' '"),
    ],
)
def test_a_rule_that_says_nothing_possible_is_refused(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TableSpec(expect={"r": {"predicate": "a > 0", **rule}})  # type: ignore[dict-item]


@pytest.mark.parametrize("of", [str, Expectation])
def test_a_rule_that_asks_spark_for_the_file_it_is_reading_is_refused(of: Any) -> None:
    with pytest.raises(SqlError, match="is empty where rows are held"):
        TableSpec(expect={"r": of("input_file_name() LIKE '%.csv'")})


def test_a_rule_is_the_same_as_a_dict_and_may_hold_templates() -> None:
    rule = Expectation("a > {{ n }}", on_violation="{{ level }}", max_share="{{ share }}")  # type: ignore[arg-type]
    task = load(ASIDE, {"r": rule, "s": "b > {{ n }}"})
    task.render_template_fields({"n": 3, "level": "warn", "share": 0.5})

    assert task.ingest().table.expect == {
        "r": Expectation("a > 3", on_violation="warn", max_share=0.5),
        "s": "b > 3",
    }


def test_warnings_of_several_batches_are_added_up_rule_by_rule_and_the_worst_comes_first() -> None:
    first = {"named": RuleCount(1, 40), "positive": RuleCount(0, 40)}
    then = {"named": RuleCount(0, 1_000), "positive": RuleCount(3, 1_000), "new": RuleCount(0, 1_000)}

    assert lines(total([first, {}, then])) == [
        "3 of 1,040 rows (0.288%) break the rule 'positive'",
        "1 of 1,040 rows (0.0962%) breaks the rule 'named'",
    ]
