"""What Airflow asks a provider for."""

from __future__ import annotations

from typing import Any

from airflow_provider_scope import __version__


def get_provider_info() -> dict[str, Any]:
    """Describe this provider; Airflow's schema is ``airflow/provider_info.schema.json``."""
    integration = "Delta Lake incremental ingestion"
    return {
        "package-name": "airflow-provider-scope",
        "name": "Scope",
        "description": "Incremental, exactly-once ingestion into Delta Lake tables.",
        "versions": [__version__],
        "integrations": [
            {"integration-name": integration, "external-doc-url": "https://delta.io", "tags": ["software"]}
        ],
        "operators": [
            {
                "integration-name": integration,
                "python-modules": ["airflow_provider_scope.operators.delta_ingest"],
            }
        ],
        "cli": ["airflow_provider_scope.cli.definition.get_scope_cli_commands"],
    }
