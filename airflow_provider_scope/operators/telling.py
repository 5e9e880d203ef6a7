"""What is told about a run to Airflow: nothing is decided by it, so that it fails fails no run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context


@contextmanager
def only_told(log: Any, what: str) -> Iterator[None]:
    """Turn a failure of the block into a warning: the rows are in the table, or not, whatever it says.

    :param what: What does not come about then, as the beginning of a sentence.
    """
    try:
        yield
    except Exception as err:  # noqa: BLE001 - whatever it is, it is about words
        log.warning("%s: %s: %s. This changes nothing in the table.", what, type(err).__name__, err)


def emit(
    context: Context,
    outlets: Sequence[Any],
    result: Mapping[str, Any],
    *,
    table: str,
    log: Any,
) -> None:
    """Tell a run's result with the event of each outlet.

    An asset, and a reference to one, take it as the event's extra. An alias takes an event of the table, if
    the run committed a batch. Other things, such as a ``File`` of OpenLineage, have no events.

    :param table: URI of the table.
    """
    for outlet in outlets:
        with only_told(log, f"The event of the outlet {outlet!r} is without the run's result"):
            if isinstance(outlet, Asset | AssetRef):
                context["outlet_events"][outlet].extra = dict(result)
            elif isinstance(outlet, AssetAlias) and result.get("batches"):
                _add(context["outlet_events"][outlet], table, dict(result))


def _add(event: Any, table: str, extra: dict[str, Any]) -> None:
    asset = Asset(table)
    try:
        # Two assets cannot have one URI: somebody may have named the table's already.
        event.add(Asset.ref(uri=asset.uri), extra)
    except AirflowRuntimeError as err:
        if err.error.error is not ErrorType.ASSET_NOT_FOUND:
            raise
        event.add(asset, extra)
