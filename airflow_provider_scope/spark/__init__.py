"""The Spark application, shipped to Spark with the few modules that it imports; never imports Airflow.

``load``, ``read_changes`` and ``consume`` are for notebooks and tests. They are found when they are asked
for: they are not part of what is shipped.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name in {"load", "LoadResult"}:
        return getattr(import_module("airflow_provider_scope.session"), name)
    if name in {"read_changes", "consume", "ChangeBatch"}:
        return getattr(import_module("airflow_provider_scope.change_batches"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
