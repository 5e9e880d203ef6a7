"""Hooks of ADLA and ADLS Gen1: the identity with which a connection calls them, through azure-identity."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook, conf

from airflow_provider_scope.exceptions import InputError, ServiceAuthError, mask, of_extra
from airflow_provider_scope.get_provider_info import CREDENTIALS
from airflow_provider_scope.hooks.settings import (
    DefaultIdentity,
    Fields,
    Service,
    connection_of,
    service_of,
)
from airflow_provider_scope.stores.calls import Token, Tokens

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.stores.http import HttpClient

SCOPE = "https://datalake.azure.net/.default"
"""The audience of both services; a token of Azure's management API is not accepted."""

# Azure's libraries log requests at INFO.
logging.getLogger("azure.core.pipeline.policies.http_logging_policy").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the connection says about credentials; equal ones share their token."""

    kind: str
    tenant: str | None = None
    client_id: str | None = None
    secret: str | None = field(default=None, repr=False)
    certificate_path: str | None = None
    certificate_password: str | None = field(default=None, repr=False)
    default: DefaultIdentity = field(default_factory=DefaultIdentity)
    credential_class: str | None = None
    credential_kwargs: str = field(default="{}", repr=False)
    """JSON."""


def identity_of(fields: Fields, service: Service) -> Identity:
    """Read the credentials; a kind that is not named follows from what is there.

    :raises InputError: The kind is unknown, lacks a field, or is not allowed.
    """
    kind = fields.text("credential") or "auto"
    identity = Identity(
        kind=_kind(fields, service) if kind == "auto" else kind,
        tenant=fields.text("tenant"),
        client_id=fields.login,
        secret=fields.password,
        certificate_path=fields.text("certificate_path"),
        certificate_password=fields.secret("certificate_password"),
        default=DefaultIdentity.of(fields),
        credential_class=fields.text("credential_class"),
        credential_kwargs=_kwargs(fields),
    )
    _check(fields, identity, service)
    return identity


def credential_of(identity: Identity) -> Any:
    """Make the credential: an object with azure-identity's ``get_token``."""
    # Not with the module: it takes 0.4 s, and Dag files import the hooks.
    with of_extra("scope", "The identity of a connection to SCOPE jobs and ADLS Gen1"):
        from azure.identity import (
            AzureCliCredential,
            CertificateCredential,
            ClientSecretCredential,
            DefaultAzureCredential,
            ManagedIdentityCredential,
            WorkloadIdentityCredential,
        )

    match identity.kind:
        case "client_secret":
            return ClientSecretCredential(
                identity.tenant or "", identity.client_id or "", identity.secret or ""
            )
        case "certificate":
            return CertificateCredential(
                identity.tenant or "",
                identity.client_id or "",
                identity.certificate_path,
                password=identity.certificate_password,
            )
        case "managed_identity":
            return ManagedIdentityCredential(client_id=identity.default.managed_identity_client_id)
        case "workload_identity":
            # What is None comes from the environment that the cluster sets.
            options = {
                "tenant_id": identity.default.workload_identity_tenant_id or identity.tenant,
                "client_id": identity.client_id,
            }
            return WorkloadIdentityCredential(**{name: value for name, value in options.items() if value})
        case "azure_cli":
            return AzureCliCredential(tenant_id=identity.tenant or "")
        case "class":
            module, _, name = (identity.credential_class or "").rpartition(".")
            return getattr(import_module(module), name)(**json.loads(identity.credential_kwargs))
        case _:
            return DefaultAzureCredential(**identity.default.options())


def acquire(identity: Identity) -> Token:
    """Get a new token.

    :raises ServiceAuthError: There is none to be had; the message holds why, without secrets.
    """
    if identity.kind == "emulator":
        return Token("emulator", float("inf"))
    try:
        # A credential keeps its token, also one that the service refused: so each one is used once.
        token = credential_of(identity).get_token(SCOPE)
        return Token(token.token, float(token.expires_on))
    except InputError:
        raise  # a package is missing
    except Exception as err:  # noqa: BLE001 - a class of the user's own may raise anything
        text = mask(f"{type(err).__name__}: {err}", *_secrets(identity))
    # Outside of the handler: the original error is not chained, for its text may hold a secret.
    raise ServiceAuthError(
        f"Could not get a token for {SCOPE} with the credential {identity.kind!r}: {text}",
        kept="everything; nothing was sent to the service",
        do="correct the connection's credentials; test_connection tries them",
    )


class ServiceHook(BaseHook):
    """A hook of one service. Its calls block: a trigger makes them in a thread.

    :param connection: The connection itself, where it was read before: a trigger reads it asynchronously.
    """

    suffix: str
    """The end of the host of every account."""

    def __init__(self, conn_id: str, connection: Connection | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._conn_id = conn_id
        self._connection = connection

    @cached_property
    def _fields(self) -> Fields:
        return Fields(self._connection or connection_of(self._conn_id))

    @cached_property
    def service(self) -> Service:
        """Where the service is.

        :raises InputError: The connection is not valid.
        """
        return service_of(self._fields, self.suffix)

    @cached_property
    def _http(self) -> HttpClient:
        from airflow_provider_scope.stores.http import HttpClient

        service = self.service
        return HttpClient(service.url, tokens_of(identity_of(self._fields, service)), **service.requests)

    def close(self) -> None:
        """Close the connections of this hook."""
        if "_http" in self.__dict__:
            self._http.close()


_tokens: dict[Identity, Tokens] = {}
_tokens_lock = threading.Lock()


def tokens_of(identity: Identity) -> Tokens:
    """Return the tokens of an identity, the same ones for all hooks of this process."""
    with _tokens_lock:
        if identity not in _tokens:
            _tokens[identity] = Tokens(lambda: acquire(identity))
        return _tokens[identity]


def allowed_classes() -> list[str]:
    """Read the import paths that ``[adla_scope] allowed_credential_classes`` lists."""
    listed = conf.get("adla_scope", "allowed_credential_classes", fallback="") or ""
    return listed.replace(",", " ").split()


def _kind(fields: Fields, service: Service) -> str:
    if fields.get("certificate_path"):
        return "certificate"
    if fields.password:
        return "client_secret"
    if fields.get("credential_class"):
        return "class"
    return "emulator" if service.is_local else "default"


def _check(fields: Fields, identity: Identity, service: Service) -> None:
    if identity.kind not in CREDENTIALS:
        raise fields.bad("credential", identity.kind, "one of " + ", ".join(CREDENTIALS))
    needed = {
        "client_secret": ("tenant", "client_id", "secret"),
        "certificate": ("tenant", "client_id", "certificate_path"),
        "class": ("credential_class",),
    }.get(identity.kind, ())
    shown = {"client_id": "login (client ID)", "secret": "password (client secret)"}
    missing = [shown.get(name, name) for name in needed if not getattr(identity, name)]
    if missing:
        raise InputError(
            f"The connection {fields.conn_id} uses the credential {identity.kind!r} and lacks "
            f"{', '.join(missing)}.",
            kept="everything; nothing was sent",
            do="complete the connection, or name another credential: " + ", ".join(CREDENTIALS),
        )
    if identity.kind == "emulator" and not service.is_local:
        raise fields.bad("credential", "emulator", "another one: the service is not on this machine")
    if identity.kind == "class" and identity.credential_class not in allowed_classes():
        raise InputError(
            f"The connection {fields.conn_id} names the credential class {identity.credential_class}, which "
            "is not allowed.",
            kept="everything; the class was not imported",
            do="add it to [adla_scope] allowed_credential_classes in Airflow's configuration, on workers "
            "and triggerers: otherwise, whoever edits connections could run any class",
        )


def _kwargs(fields: Fields) -> str:
    """Read ``credential_kwargs`` as canonical JSON text."""
    value = fields.get("credential_kwargs")
    try:
        value = json.loads(value) if isinstance(value, str) else value or {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise fields.bad("credential_kwargs", "…", "a JSON object")
    return json.dumps(value, sort_keys=True)


def _secrets(identity: Identity) -> list[str]:
    """Collect every text that must not be shown, the longest first: one may hold another."""
    texts = [identity.secret, identity.certificate_password, *_leaves(json.loads(identity.credential_kwargs))]
    return sorted((text for text in texts if text), key=len, reverse=True)


def _leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _leaves(item)]
    if isinstance(value, list):
        return [text for item in value for text in _leaves(item)]
    return [value] if isinstance(value, str) else []
