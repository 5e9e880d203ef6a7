"""What Airflow asks a provider for."""

from __future__ import annotations

from typing import Any

from airflow_provider_scope import __version__

CREDENTIALS = (
    "auto",
    "client_secret",
    "certificate",
    "managed_identity",
    "workload_identity",
    "azure_cli",
    "default",
    "class",
    "emulator",
)
"""The kinds of credentials of a connection. They stand here, because Airflow asks for the forms in every
process, and so this module imports nothing."""
_INTEGRATION = "Delta Lake incremental ingestion"
_LOGIN = {"login": "Client ID", "password": "Client secret"}


def get_provider_info() -> dict[str, Any]:
    """Describe this provider; Airflow's schema is ``airflow/provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-scope",
        "name": "Scope",
        "description": "Incremental, exactly-once ingestion into Delta Lake tables.",
        "versions": [__version__],
        "integrations": [
            {"integration-name": _INTEGRATION, "external-doc-url": "https://delta.io", "tags": ["software"]}
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_provider_scope.operators.delta_ingest",
                    "airflow_provider_scope.operators.pipeline_command",
                    "airflow_provider_scope.operators.scope_submit",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_provider_scope.hooks.scope",
                    "airflow_provider_scope.hooks.adls_gen1",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": ["airflow_provider_scope.sensors.adls_gen1"],
            }
        ],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_provider_scope.triggers.job",
                    "airflow_provider_scope.triggers.gen1_files",
                ],
            }
        ],
        "extra-links": ["airflow_provider_scope.links.job.JobLink"],
        "connection-types": [_adla_scope(), _adls_gen1()],
        "config": {
            "adla_scope": {
                "description": "Connections to Azure Data Lake Analytics and Azure Data Lake Storage Gen1.",
                "options": {
                    "allowed_credential_classes": {
                        "description": "Import paths of credential classes that a connection may name, "
                        "separated by commas. Whoever edits connections can run a class that is listed "
                        "here, with arguments of their own, on workers and triggerers.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "my_company.azure.OurCredential",
                        "default": "",
                    }
                },
            },
        },
        "cli": ["airflow_provider_scope.cli.definition.get_scope_cli_commands"],
    }


def _adla_scope() -> dict[str, Any]:
    return {
        "connection-type": "adla_scope",
        "hook-class-name": "airflow_provider_scope.hooks.scope.ScopeHook",
        "hook-name": "Azure Data Lake Analytics (SCOPE)",
        "ui-field-behaviour": {
            "hidden-fields": ["port", "schema"],
            "relabeling": {**_LOGIN, "host": "Service URL"},
            "placeholders": {"host": "https://<account>.azuredatalakeanalytics.net"},
        },
        "conn-fields": {
            **_section("Account", account_name=_needed("Account", "The Data Lake Analytics account.")),
            **_section("Identity", **_credentials()),
            **_section(
                "Jobs",
                au=_number("AU", "Analytics units of a job.", 100, 1),
                priority=_number("Priority", "A lower number leaves the queue first.", 1, 1),
                job_timeout_seconds=_number(
                    "Job timeout (s)", "A job that takes longer is cancelled.", 36000, 1
                ),
                poll_interval=_number(
                    "Poll interval (s)", "Between two looks at a job; at least 10 s in the triggerer.", 5, 1
                ),
                feature_previews=_text(
                    "Feature previews",
                    "SCOPE's @@FeaturePreviews.",
                    default="EnableDeltaTableDynamicInsert:on",
                ),
            ),
            **_section(
                "Limits of a batch",
                max_files_per_trigger=_number("Files", "Most files of one job.", 50, 1),
                max_bytes_per_trigger=_text(
                    "Size",
                    "Most that one job reads, such as 500 GiB; its first file is always taken. A number "
                    "without a unit is bytes.",
                    default="10000 GiB",
                ),
            ),
            **_section(
                "Tables without a location",
                storage_account=_text("Storage account", "Where tables without delta_location are."),
                container=_text("Container", "The container of the storage account."),
                delta_base_path=_text("Base path", "The folder of the tables in the container."),
            ),
            **_section("Requests", **_http()),
        },
    }


def _adls_gen1() -> dict[str, Any]:
    return {
        "connection-type": "adls_gen1",
        "hook-class-name": "airflow_provider_scope.hooks.adls_gen1.AdlsGen1Hook",
        "hook-name": "Azure Data Lake Storage Gen1",
        "ui-field-behaviour": {
            "hidden-fields": ["port", "schema"],
            "relabeling": {**_LOGIN, "host": "Service URL"},
            "placeholders": {"host": "https://<account>.azuredatalakestore.net"},
        },
        "conn-fields": {
            **_section(
                "Account",
                account_name=_needed("Account", "The Data Lake Storage Gen1 account."),
                base_path=_text("Folder to test", "The folder that the connection test lists."),
            ),
            **_section("Identity", **_credentials()),
            **_section("Requests", **_http()),
        },
    }


def _section(title: str, **fields: dict[str, Any]) -> dict[str, Any]:
    """Put fields below one heading of the form, which keeps their order."""
    for field in fields.values():
        field["schema"]["section"] = title
    return fields


def _needed(label: str, description: str) -> dict[str, Any]:
    return {"label": label, "description": description, "schema": {"type": "string", "minLength": 1}}


def _credentials() -> dict[str, Any]:
    credential = _text("Credential", "auto: as the fields that are filled in say.", default="auto")
    credential["schema"]["enum"] = [*CREDENTIALS]
    secret = {"type": ["string", "null"], "format": "password"}
    return {
        "credential": credential,
        "tenant": _text("Tenant ID", "For a client secret or a certificate."),
        "certificate_path": _text("Certificate", "Path of a PEM or PKCS12 file on workers and triggerers."),
        "certificate_password": {
            "label": "Certificate password",
            "description": "Empty: the file has none.",
            "schema": dict(secret),
        },
        "managed_identity_client_id": _text("Managed identity", "Client ID; empty is the system's own."),
        "workload_identity_tenant_id": _text(
            "Workload identity tenant", "Empty: what the cluster's environment says."
        ),
        "workload_identity_client_id": _text(
            "Workload identity", "Client ID, for the credential default. Empty: as the environment says."
        ),
        "credential_class": _text(
            "Credential class", "Import path; must be in [adla_scope] allowed_credential_classes."
        ),
        "credential_kwargs": {
            "label": "Arguments of the credential class",
            "description": "A JSON object.",
            "schema": dict(secret),
        },
    }


def _http() -> dict[str, Any]:
    return {
        "http_timeout_seconds": _number("HTTP timeout (s)", "For each request.", 30, 1),
        "http_retries": _number(
            "HTTP retries", "Further tries after network errors, 429 and errors of the server.", 3, 0
        ),
        "retry_on_error_messages": {
            "label": "Refusals that pass",
            "description": "One text a line, or re: and a regular expression. A request that is refused "
            "with one of them is sent up to 25 times. Empty: the texts of a full queue.",
            "schema": {"type": ["string", "null"], "format": "multiline"},
        },
    }


def _text(label: str, description: str, default: str | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["string", "null"]}
    if default is not None:
        schema["default"] = default
    return {"label": label, "description": description, "schema": schema}


def _number(label: str, description: str, default: int, minimum: int) -> dict[str, Any]:
    return {
        "label": label,
        "description": description,
        "schema": {"type": ["integer", "null"], "default": default, "minimum": minimum},
    }
