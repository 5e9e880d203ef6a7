"""Every module can be imported with the installed versions."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from airflow import __version__ as airflow

import airflow_provider_scope as package
from airflow_provider_scope.exceptions import InputError

SINCE_AIRFLOW_3_3 = "airflow_provider_scope.operators.retry_policy"
MODULES = [
    module.name
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith(("main", "main__"))
]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_imported(name):
    if name == SINCE_AIRFLOW_3_3 and tuple(map(int, airflow.split(".")[:2])) < (3, 3):
        with pytest.raises(InputError, match=r"SCOPE_RETRY_POLICY needs Airflow 3\.3 or newer"):
            importlib.import_module(name)
        return

    importlib.import_module(name)
