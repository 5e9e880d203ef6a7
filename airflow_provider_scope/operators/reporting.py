"""How a run is reported to Airflow: its errors by what they say, its result as events of the outlets."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType

from airflow_provider_scope.protocol.commands import Address
from airflow_provider_scope.specs import ScopeEngine, SparkEngine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_provider_scope.exceptions import ScopeProviderError
    from airflow_provider_scope.specs.ingest import Ingest


def address_of(
    ingest: Ingest, task: tuple[str, str], map_index: int | None, storage_conn_id: str | None
) -> Address:
    """Collect the options that complete the commands in the error messages of a task.

    :param task: The ids of the Dag and of the task.
    :param map_index: The instance, of a mapped task.
    """
    engine = ingest.engine
    scope = engine if isinstance(engine, ScopeEngine) else None
    return Address(
        table=ingest.delta_location or None,
        task=task,
        map_index=map_index,
        checkpoint=ingest.checkpoint.location,
        interval=ingest.window.name if ingest.window else None,
        storage_conn_id=storage_conn_id,
        spark_conn_id=engine.spark_conn_id if isinstance(engine, SparkEngine) else None,
        scope_conn_id=scope.scope_conn_id if scope else None,
        tag=(scope.job_tag or task[1]) if scope else None,
    )


def fail(err: ScopeProviderError, log: Any) -> NoReturn:
    """Fail the task; the error's own words stand in its log before Airflow's stack, and end it.

    Airflow shows the stack of an exception, and that of each one behind it: sixty lines, none of which
    helps whoever reads them. Where the error was raised is told at debug level.

    :raises AirflowFailException: Another try cannot help.
    :raises ScopeProviderError: The error itself, if it can.
    """
    log.error("%s: %s", type(err).__name__, err)
    log.debug("The task fails with %s", type(err).__name__, exc_info=err)
    if err.is_retryable:
        raise err.with_traceback(None) from None
    raise AirflowFailException(f"{type(err).__name__}: {err}") from None


@contextmanager
def warn_on_failure(log: Any, consequence: str) -> Iterator[None]:
    """Log a failure of the block as a warning. Whether the rows are in the table does not depend on it.

    :param consequence: What the failure means for the user, as the beginning of a sentence.
    """
    try:
        yield
    except Exception as err:  # noqa: BLE001 - whatever it is, it is about words
        log.warning("%s: %s: %s. This changes nothing in the table.", consequence, type(err).__name__, err)


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
        with warn_on_failure(log, f"The event of the outlet {outlet!r} is without the run's result"):
            if isinstance(outlet, Asset | AssetRef):
                context["outlet_events"][outlet].extra = dict(result)
            elif isinstance(outlet, AssetAlias) and result.get("batches"):
                _add(context["outlet_events"][outlet], table, dict(result))


def without_assets(outlets: Sequence[Any]) -> list[Any]:
    """Give the outlets that get no event by the success of the task alone."""
    return [outlet for outlet in outlets if not isinstance(outlet, Asset | AssetRef)]


def _add(event: Any, table: str, extra: dict[str, Any]) -> None:
    asset = Asset(table)
    try:
        # Two assets cannot have one URI: somebody may have named the table's already.
        event.add(Asset.ref(uri=asset.uri), extra)
    except AirflowRuntimeError as err:
        if err.error.error is not ErrorType.ASSET_NOT_FOUND:
            raise
        event.add(asset, extra)
