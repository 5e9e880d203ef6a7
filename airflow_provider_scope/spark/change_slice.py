"""The batch of an entry with versions: its net changes, and the state after them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from airflow_provider_scope.core import changes
from airflow_provider_scope.exceptions import NO_ROW_WRITTEN, MergeKeyError, SqlError
from airflow_provider_scope.spark.causes import short_cause
from airflow_provider_scope.spark.events import emit
from airflow_provider_scope.spark.feed import naming_causes, select
from airflow_provider_scope.spark.net import Net
from airflow_provider_scope.spark.reading import checked, over_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from airflow_provider_scope.core.plan import Plan
    from airflow_provider_scope.core.slices import VersionSlice
    from airflow_provider_scope.spark.target import Target
    from airflow_provider_scope.spark.transaction import Transaction

__all__ = ["commit", "select"]

_EQUAL_KEYS = (
    "rows that were inserted in the source replaced others with the same key, at least {count:,}. Check "
    "whether {keys} identifies each row of the source"
)


def commit(plan: Plan, target: Target, transaction: Transaction, rows: Callable[[], DataFrame]) -> int | None:
    """Commit the changes, together with the state after them.

    :param rows: Gives what ``select`` gave.
    :return: The table's version, or None if the batch was there.
    :raises ChangeFeedError: The changes cannot be read, or not be brought to one for each key.
    """
    entry = transaction.entry
    found: VersionSlice = entry.slice  # type: ignore[assignment] # as the reader was chosen
    notes = {"state": changes.state_behind(found)}
    data = rows()
    key = plan.write.get({"merge": "primary_key", "scd2": "merge_key"}.get(plan.write.get("kind", ""), ""))
    if not key:
        with _with_ways_out(found):
            result = over_rows(target.spark, plan.sql, plan.sql_params, data, entry.seq)
        with naming_causes(plan.changes.table, found):
            return target.write(transaction, checked(plan, result), notes)
    net = Net(target.spark, plan, entry, data, key)
    with _with_ways_out(found), net.held() as (result, deleted):
        if not net.count and entry.mode == "append" and target.log.metadata() is not None:
            return target.write_nothing(transaction, notes)
        version = target.write(
            transaction,
            checked(plan, result),
            notes,
            deleted=deleted,
            keys=net.keys(result),
        )
        if version is not None and net.is_whole and entry.where is None:
            _tell_of_equal_keys(net, target.log.growth(version))
        return version


def _tell_of_equal_keys(net: Net, growth: int | None) -> None:
    """Warn if the source has got more rows than the table: the feed does not say that a key was there.

    A table that got more rows than the source lacked some, as if the first load began amid the changes.
    """
    if growth is not None and growth < net.growth:
        told = _EQUAL_KEYS.format(count=net.growth - growth, keys=", ".join(net.key))
        emit(event="notice", seq=net.seq, told=told)


@contextmanager
def _with_ways_out(found: VersionSlice) -> Iterator[None]:
    """Say of a key or a column what can be done about it: the batch keeps its versions."""
    try:
        yield
    except AnalysisException as err:
        if "UNRESOLVED_COLUMN" not in str(err.getCondition()):
            raise
        raise SqlError(
            f"The SQL fails on the {found.text()}: {short_cause(err)}",
            kept=NO_ROW_WRITTEN,
            do=f"correct `sql`: it sees the columns that the source had at version {found.last}. If a column "
            "was renamed since, run the task with its old name until this batch is committed, and then with "
            "the new one",
        ) from err
    except MergeKeyError as err:
        raise MergeKeyError(
            err.what,
            kept=err.kept,
            do=f"{err.do}. The batch is the {found.text()}: a correction in the source comes with a later "
            "version. To load both together, correct the source, and abandon the batch with `airflow scope "
            "abandon`: the next batch goes up to the newest version",
        ) from err
