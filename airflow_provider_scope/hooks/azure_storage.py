"""The identity with which adlfs and Spark reach Azure Storage, made of an Airflow connection."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from airflow_provider_scope.exceptions import InputError, of_extra
from airflow_provider_scope.hooks.settings import DefaultIdentity, fields_of
from airflow_provider_scope.stores.azure import SCHEME, AzureStorage
from airflow_provider_scope.stores.calls import is_loopback
from airflow_provider_scope.stores.protocol import Store

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.hooks.settings import Fields

_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"
_OTHER_SERVICES = ("adls_gen1", "azure_data_lake", "azure", "azure_data_explorer")
"""Types of connections whose host and account are not those of Azure Storage."""
_USABLE = ("auto", "client_secret", "managed_identity", "workload_identity", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAccess:
    """Credentials for one storage account."""

    kind: Literal["account_key", "sas", "client_secret", "default"]
    secret: str = field(default="", repr=False)
    tenant: str | None = None
    client_id: str | None = None
    default: DefaultIdentity = field(default_factory=DefaultIdentity)
    blob_endpoint: str | None = None
    """Where the blob service is, if not at the account's own host: an emulator, a private address."""

    def filesystem(self, host: str) -> Any:
        """Connect adlfs to an account.

        :param host: Its host in URIs: ``<account>.dfs.…``.
        :raises InputError: adlfs would take credentials out of the environment instead.
        """
        # Not with the module: it takes 0.5 s, and Dag files import this one.
        with of_extra("azure", f"A location on Azure Storage ({host})"):
            from adlfs import AzureBlobFileSystem  # type: ignore[import-untyped]

        account = host.partition(".")[0]
        blob_host = host.replace(".dfs.", ".blob.", 1)
        if self.kind in ("account_key", "sas"):
            # As a connection string: whatever the environment says, adlfs takes this one.
            name = "AccountKey" if self.kind == "account_key" else "SharedAccessSignature"
            endpoint = self.blob_endpoint or f"https://{blob_host}"
            text = f"AccountName={account};BlobEndpoint={endpoint};{name}={self.secret}"
            return AzureBlobFileSystem(connection_string=text, skip_instance_cache=True)
        filesystem = AzureBlobFileSystem(
            account_name=account,
            account_host=urlsplit(self.blob_endpoint).netloc if self.blob_endpoint else blob_host,
            credential=self._credential(),
            skip_instance_cache=True,
        )
        if filesystem.connection_string:
            raise InputError(
                "The environment has AZURE_STORAGE_CONNECTION_STRING, which adlfs prefers to the connection.",
                kept="everything; nothing was read or written",
                do="remove it from the worker's environment; or put it into the connection",
            )
        return filesystem

    def spark_conf(self, host: str) -> dict[str, str]:
        """Return the properties with which Hadoop's ABFS client is the same identity; secrets included."""
        prefix = "spark.hadoop.fs.azure"
        if self.kind == "account_key":
            return {
                f"{prefix}.account.auth.type.{host}": "SharedKey",
                f"{prefix}.account.key.{host}": self.secret,
            }
        if self.kind == "sas":
            return {
                f"{prefix}.account.auth.type.{host}": "SAS",
                f"{prefix}.sas.fixed.token.{host}": self.secret,
            }
        provider, oauth = self._oauth()
        return {
            f"{prefix}.account.auth.type.{host}": "OAuth",
            f"{prefix}.account.oauth.provider.type.{host}": f"{_OAUTH}.{provider}",
            **{f"{prefix}.account.oauth2.{name}.{host}": value for name, value in oauth.items() if value},
        }

    def _oauth(self) -> tuple[str, dict[str, str]]:
        """Choose provider and properties of tokens; for "default" in the order of azure-identity's chain."""
        environment, default = os.environ, self.default
        if self.kind == "client_secret":
            return _client(self.tenant or "", self.client_id or "", self.secret)
        if environment.get("AZURE_CLIENT_SECRET") and not default.managed_identity_client_id:
            return _client(
                environment.get("AZURE_TENANT_ID", ""),
                environment.get("AZURE_CLIENT_ID", ""),
                environment["AZURE_CLIENT_SECRET"],
            )
        if default.workload_identity_tenant_id or environment.get("AZURE_FEDERATED_TOKEN_FILE"):
            return "WorkloadIdentityTokenProvider", {
                "msi.authority": f"{_authority()}/",
                "msi.tenant": default.workload_identity_tenant_id or environment.get("AZURE_TENANT_ID", ""),
                "client.id": default.workload_identity_client_id
                or default.managed_identity_client_id
                or environment.get("AZURE_CLIENT_ID", ""),
                "token.file": environment.get("AZURE_FEDERATED_TOKEN_FILE", ""),
            }
        client_id = default.managed_identity_client_id or environment.get("AZURE_CLIENT_ID", "")
        return "MsiTokenProvider", {"client.id": client_id}

    def _credential(self) -> Any:
        # Not with the module: it takes 0.4 s. adlfs is asynchronous, and so are its credentials.
        with of_extra("azure", "The identity of a connection to Azure Storage"):
            from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential

        if self.kind == "client_secret":
            return ClientSecretCredential(self.tenant or "", self.client_id or "", self.secret)
        return DefaultAzureCredential(**self.default.options())


DEFAULT = AzureAccess(kind="default")
"""The identity of the environment: what ``DefaultAzureCredential`` finds."""


def open_store(uri: str, conn_id: str | None, connection: Connection | None) -> Store:
    """Open a container's account; without a connection as whoever the worker is.

    :raises InputError: The connection does not fit the location.
    """
    host = uri.removeprefix(SCHEME).partition("@")[2].partition("/")[0]
    fields = fields_of(conn_id, connection)
    access = access_of(fields, host) if fields else DEFAULT
    storage = AzureStorage(access.filesystem(host), host)
    return Store(storage=storage, spark_conf=access.spark_conf(host))


def access_of(fields: Fields, host: str) -> AzureAccess:
    """Read a connection: the fields of the types ``wasb``, ``adls``, ``azure_data_lake``, ``azure`` and ours.

    :param host: The account's host in URIs.
    :raises InputError: It is for another account, or its credentials do not work on Azure Storage.
    """
    text = fields.secret("connection_string")
    if text:
        return _of_connection_string(fields, text, host)
    tenant = fields.text("tenant_id") or fields.text("tenantId") or fields.text("tenant")
    elsewhere = fields.conn_type in _OTHER_SERVICES
    if not elsewhere:
        _check_account(fields, fields.host, host)
    default = DefaultIdentity.of(fields)
    if fields.conn_type == "adls_gen1":
        default = _of_gen1(fields, default, host)
    endpoint = fields.host.rstrip("/") if not elsewhere and _is_local(fields.host) else None
    # Another identity that is named counts, although a secret is still in the connection.
    is_by_secret = fields.text("credential") in (None, "auto", "client_secret")
    if is_by_secret and tenant and fields.login and fields.password:
        return AzureAccess(
            kind="client_secret",
            secret=fields.password,
            tenant=tenant,
            client_id=fields.login,
            blob_endpoint=endpoint,
        )
    key = fields.secret("shared_access_key") or fields.secret("account_key")
    sas = fields.secret("sas_token")
    if not key and not sas and not elsewhere:
        key = fields.password
    if key:
        _check_account(fields, fields.login or "", host)
        return AzureAccess(kind="account_key", secret=key, blob_endpoint=endpoint)
    if sas:
        if sas.startswith("https://"):
            _check_account(fields, sas, host)
            sas = sas.partition("?")[2]
        return AzureAccess(kind="sas", secret=sas.lstrip("?"), blob_endpoint=endpoint)
    return AzureAccess(kind="default", default=default, blob_endpoint=endpoint)


def _of_gen1(fields: Fields, default: DefaultIdentity, host: str) -> DefaultIdentity:
    """Return the identity that is not the client secret, as the files of Gen1 have it.

    :raises InputError: It is one that adlfs does not take.
    """
    kind = fields.text("credential") or "auto"
    if kind == "auto" and fields.get("certificate_path"):
        kind = "certificate"
    elif kind == "auto" and fields.get("credential_class") and not fields.password:
        kind = "class"
    if kind not in _USABLE:
        raise fields.bad("credential", kind, f"for {host}: one of {', '.join(_USABLE)}")
    if kind != "workload_identity":
        return default
    tenant = default.workload_identity_tenant_id or fields.text("tenant")
    return replace(default, workload_identity_tenant_id=tenant, workload_identity_client_id=fields.login)


def _of_connection_string(fields: Fields, text: str, host: str) -> AzureAccess:
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    settings = {name.strip().lower(): value.strip() for name, value in parts.items()}
    account = settings.get("accountname", "")
    if account:
        _check_account(fields, account, host)
    endpoint = settings.get("blobendpoint") or None
    if not account and endpoint:
        _check_account(fields, endpoint, host)
    if settings.get("accountkey"):
        return AzureAccess(kind="account_key", secret=settings["accountkey"], blob_endpoint=endpoint)
    if settings.get("sharedaccesssignature"):
        secret = settings["sharedaccesssignature"].lstrip("?")
        return AzureAccess(kind="sas", secret=secret, blob_endpoint=endpoint)
    raise fields.bad("connection_string", "…", "one with AccountKey or SharedAccessSignature")


def _client(tenant: str, client_id: str, secret: str) -> tuple[str, dict[str, str]]:
    return "ClientCredsTokenProvider", {
        "client.endpoint": f"{_authority()}/{tenant}/oauth2/token",
        "client.id": client_id,
        "client.secret": secret,
    }


def _authority() -> str:
    """Return where tokens are given, as azure-identity looks for it: each cloud has its own."""
    host = os.environ.get("AZURE_AUTHORITY_HOST") or "login.microsoftonline.com"
    return (host if "://" in host else f"https://{host}").rstrip("/")


def _check_account(fields: Fields, address: str, host: str) -> None:
    """Refuse a connection of another account: its key or signature is not for this one.

    :param address: An account's name, host or URL; empty if the connection has none.
    """
    if "://" in address:
        account_host = urlsplit(address).hostname or ""
    else:
        account_host = address.partition("/")[0].partition(":")[0]
    if not account_host or is_loopback(account_host):
        return
    account = account_host.partition(".")[0].lower()
    target = host.partition(".")[0]
    # Endpoints of a geo-replica have the account's name with a suffix.
    if account.removesuffix("-secondary") != target:
        raise fields.for_another("account", f"the account {account}", target)


def _is_local(text: str) -> bool:
    return "://" in text and is_loopback(urlsplit(text).hostname or "")
