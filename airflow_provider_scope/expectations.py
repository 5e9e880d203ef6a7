"""Rules that the rows of the SELECT keep: what users write of them, and what the counts of a batch mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_provider_scope import validation
from airflow_provider_scope.sql import check_reads_no_file
from airflow_provider_scope.values import counted

Level = Literal["warn", "quarantine", "fail"]
RULE_HINT = "correct the rule or the SELECT"
"""What may help with a row that fails its batch by a rule which does not say so itself."""
LEVEL_HINT = f"{RULE_HINT}, or set another on_violation"
"""The same of a rule that says so."""
SHARE_HINT = f"{RULE_HINT}, or raise max_share"
"""The same of a rule that too many rows break."""


@validation.checked
@dataclass(frozen=True, slots=True)
class Expectation:
    """A rule for each row of the SELECT, and what becomes of a row that breaks it.

    :param predicate: SQL over the columns of the SELECT. A row breaks the rule if it is false or NULL.
    :param on_violation: ``"warn"`` loads the row, counts it, and warns. ``"quarantine"`` puts it into the
        quarantine, which a ``FileSource(bad_records="quarantine")`` has. ``"fail"`` fails the batch. None is
        ``"quarantine"`` with such a source, and ``"fail"`` with any other.
    :param max_share: A batch fails if a larger share than this (0 to 1) of the rows of its SELECT breaks
        the rule, and nothing of it is written. None is no limit.
    :raises InputError: A value is not valid.
    """

    predicate: str
    on_violation: Level | None = field(default=None, kw_only=True)
    max_share: validation.Share | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check the fields together; values that are templates are let through."""
        validation.text("predicate", self.predicate)
        if self.on_violation == "fail" and self.max_share is not None:
            raise validation.bad(
                "max_share",
                self.max_share,
                "None with on_violation='fail'",
                "leave it out: one row that breaks the rule fails the batch; or set on_violation='warn'",
            )

    def level(self, *, has_quarantine: bool) -> Level:
        """Return what becomes of a row that breaks the rule."""
        return self.on_violation or ("quarantine" if has_quarantine else "fail")

    @property
    def sql(self) -> str:
        """The predicate for use within other SQL: a comment at its end goes no further."""
        return f"({self.predicate}\n)"

    @property
    def is_plain(self) -> bool:
        """Whether it says no more than a predicate alone."""
        return self.on_violation is None and self.max_share is None


def rules_from(argument: str, value: Any) -> Any:
    """Check the rules of a table; a dict of the fields becomes an ``Expectation``, and text stays text."""
    validation.mapping(argument, value)
    if value is None or validation.is_deferred(value):
        return value
    return {name: _rule(f"{argument}[{name!r}]", rule) for name, rule in value.items()}


def _rule(argument: str, value: Any) -> Any:
    if isinstance(value, Expectation | Mapping):
        value = validation.from_dict(Expectation, argument, value)
        predicate = value.predicate
    else:
        predicate = validation.text(argument, value)
    if not validation.is_deferred(predicate):
        check_reads_no_file(predicate)
    return value


def expectations(rules: Mapping[str, str | Expectation] | None) -> dict[str, Expectation]:
    """Return all rules in the same form: a text is a predicate alone."""
    return {
        name: rule if isinstance(rule, Expectation) else Expectation(rule)
        for name, rule in (rules or {}).items()
    }


def check_levels(rules: Mapping[str, str | Expectation] | None, *, has_quarantine: bool) -> None:
    """Refuse what needs a quarantine where there is none.

    :raises InputError: As said, with the rule.
    """
    for name, rule in () if has_quarantine else expectations(rules).items():
        if rule.on_violation == "quarantine":
            raise validation.bad(
                f"expect[{name!r}].on_violation",
                rule.on_violation,
                "'warn' or 'fail' with a source without a quarantine",
                "set bad_records='quarantine' in the FileSource; other sources have no quarantine",
            )
        if rule.on_violation is None and rule.max_share is not None:
            raise validation.bad(
                f"expect[{name!r}].max_share",
                rule.max_share,
                "None without on_violation, with a source without a quarantine",
                "set on_violation='warn'; as it is, one row that breaks the rule fails the batch",
            )


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many rows break a rule."""

    count: int
    out_of: int
    """How many rows the SELECT gave."""

    @property
    def share(self) -> float:
        """The part of the rows, from 0 to 1."""
        return self.count / max(self.out_of, 1)

    def text(self, rule: str) -> str:
        """Write it for people: ``3 of 40 rows (7.5%) break the rule 'named'``."""
        verb = "breaks" if self.count == 1 else "break"
        of_rows = f"{self.count:,} of {counted(self.out_of, 'row')}"
        return f"{of_rows} ({100 * self.share:.3g}%) {verb} the rule {rule!r}"


def total(counts: Iterable[Mapping[str, RuleCount]]) -> dict[str, RuleCount]:
    """Add up the counts of several batches, rule by rule; the most frequent comes first."""
    sums: dict[str, RuleCount] = {}
    for rules in counts:
        for rule, rows in rules.items():
            so_far = sums.get(rule, RuleCount(0, 0))
            sums[rule] = RuleCount(so_far.count + rows.count, so_far.out_of + rows.out_of)
    return dict(sorted(sums.items(), key=lambda pair: -pair[1].count))


def lines(counts: Mapping[str, RuleCount]) -> list[str]:
    """Write a line for each rule that a row breaks."""
    return [rows.text(rule) for rule, rows in counts.items() if rows.count]


def over_share(rules: Mapping[str, Expectation], counts: Mapping[str, RuleCount]) -> dict[str, str]:
    """Find the rules that more rows of a batch break than their share allows.

    :param counts: Rule -> the rows that break it; a row counts for each rule that it breaks.
    :return: Rule -> what is wrong, in words.
    """
    limits = {name: rules[name].max_share for name in counts}
    return {
        name: f"{counts[name].text(name)} ({rules[name].predicate}), which is more than max_share={limit:g}"
        for name, limit in limits.items()
        if limit is not None and counts[name].share > limit
    }


def relaxed(rules: Mapping[str, Expectation], level: Level) -> dict[str, Expectation]:
    """Return the rules with another level where they do not only warn; if they have it, without limits."""
    result = {
        name: rule if rule.on_violation == "warn" else replace(rule, on_violation=level)
        for name, rule in rules.items()
    }
    if result != rules:
        return result
    return {name: replace(rule, max_share=None) for name, rule in rules.items()}
