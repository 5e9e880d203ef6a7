"""The fields of a connection, read and checked: where the service is, and the defaults of jobs."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_provider_scope.exceptions import ConnectionMissingError, InputError
from airflow_provider_scope.stores.calls import Repeating, is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.common.compat.sdk import Connection


QUEUE_FULL = (
    "re:Cannot exceed .*queued SCOPE jobs",
    "The maximum number of queued jobs for your account",
)
"""Messages of the service with status 400 when its queue is full, which passes."""

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", start=1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", start=1)},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*((?:[kmgtp]i?)?b|)", re.ASCII | re.IGNORECASE)
_ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Where a service is, and how requests to it are made."""

    url: str
    authority: str
    """The account's host, also when the service is an emulator somewhere else."""
    requests: Mapping[str, Any]
    """Arguments of ``HttpClient``."""

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(urlsplit(self.url).hostname or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeDefaults:
    """The values for jobs where the operator's argument is None: the connection's, or else these defaults."""

    au: int = 100
    priority: int = 1
    """A lower number leaves the queue first."""
    job_timeout_seconds: float = 36_000.0
    feature_previews: str = "EnableDeltaTableDynamicInsert:on"
    poll_interval: float = 5.0
    """Seconds between two requests for a job's state from the worker."""
    max_files_per_trigger: int = 50
    max_bytes_per_trigger: int = 10_737_418_240_000
    delta_root: str | None = None
    """``abfss://<container>@<storage account>.dfs.core.windows.net/<base path>``, or None."""

    def delta_location(self, table: str) -> str:
        """Return the place of a table whose ``delta_location`` was not given.

        :raises InputError: The connection does not say where tables are, or ``table`` is not a name.
        """
        if not self.delta_root:
            raise InputError(
                "delta_location is missing, and the connection has no storage_account and container.",
                kept="everything; nothing was read or written",
                do="give delta_location, or storage_account, container and delta_base_path on the connection",
            )
        if not re.fullmatch(r"[\w-][\w.-]*", table):
            raise InputError(
                f"The table name {table!r} cannot be a folder's name.",
                kept="everything; nothing was read or written",
                do="give delta_location",
            )
        return f"{self.delta_root}/{table}"


class Fields:
    """The fields of a connection: an empty field counts as missing.

    :param scheme: Of a host that has none.
    """

    def __init__(self, connection: Connection, scheme: str = "https") -> None:
        self.conn_id = connection.conn_id
        self.conn_type = connection.conn_type or ""
        self.host = connection.host or ""
        self.port = connection.port
        self.scheme = connection.schema or scheme
        self.login = connection.login or None
        self.password = connection.password or None
        self._prefix = f"extra__{connection.conn_type}__"
        self._extra: Mapping[str, Any] = connection.extra_dejson

    def get(self, name: str) -> Any:
        """Read an extra field; forms before Airflow 2.3 stored it under a longer name."""
        value = self._extra.get(name)
        if value in (None, ""):
            value = self._extra.get(self._prefix + name)
        return None if value == "" else value

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.bad(name, value, "text")
        return value.strip() or None if value else None

    def secret(self, name: str) -> str | None:
        """Read a secret text field as it is; an error about it does not show the value."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.bad(name, "…", "text")
        return value

    def number(self, name: str, default: float, *, at_least: float) -> float:
        """Read a number; forms may store it as text."""
        value = self.get(name)
        if value is None:
            return default
        try:
            number = float(value) if not isinstance(value, bool) else -1.0
        except (TypeError, ValueError):
            number = -1.0
        if not at_least <= number < float("inf"):
            raise self.bad(name, value, f"a number, at least {at_least:g}")
        return number

    def integer(self, name: str, default: int, *, at_least: int) -> int:
        number = self.number(name, default, at_least=at_least)
        if number != int(number):
            raise self.bad(name, self.get(name), f"a whole number, at least {at_least}")
        return int(number)

    def size(self, name: str, default: int) -> int:
        """Read a number of bytes: a number, or text with a unit such as ``500 GiB``."""
        value = self.get(name)
        if value is None:
            return default
        match = _SIZE.fullmatch(str(value).strip().replace(",", "")) if not isinstance(value, bool) else None
        bytes_ = Decimal(match[1]) * _UNITS[match[2].lower()] if match else Decimal(0)
        if bytes_ < 1:
            raise self.bad(
                name, value, "a size of at least one byte, such as '500 GiB'; a plain number is bytes"
            )
        return int(bytes_)

    def texts(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Read several texts: a list, the JSON text of one, or one text a line."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                raise self.bad(name, value, "a JSON list of texts") from None
        items = value.split("\n") if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.bad(name, value, "a list of texts")
        return tuple(item.strip() for item in items if item.strip())

    def requests(self) -> dict[str, Any]:
        """Read how long a request may take and how often it is repeated: arguments of ``HttpClient``."""
        return {
            "timeout_seconds": self.number("http_timeout_seconds", 30.0, at_least=0.1),
            "repeating": Repeating(retries=self.integer("http_retries", 3, at_least=0)),
        }

    def for_another(self, place: str, named: str, asked: str) -> InputError:
        """Return the error for a connection whose host is not that of a location: its secrets stay here."""
        return InputError(
            f"The connection {self.conn_id} is for {named}, and the location is on {asked}.",
            kept="everything; nothing was read or written",
            do=f"name the connection of that {place}, or correct the location",
        )

    def bad(self, name: str, value: object, expected: str) -> InputError:
        """Return the error for a field that is wrong; never called with a secret."""
        return InputError(
            f"The connection {self.conn_id} has {name}={value!r}: expected {expected}.",
            kept="everything; nothing was sent",
            do="correct the connection",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultIdentity:
    """What a connection says of the identity of the environment; its fields are azure-identity's options."""

    managed_identity_client_id: str | None = None
    workload_identity_tenant_id: str | None = None
    workload_identity_client_id: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> DefaultIdentity:
        """Read the fields of a connection that have the same names.

        :raises InputError: One is not text.
        """
        return cls(**{field.name: fields.text(field.name) for field in dataclasses.fields(cls)})

    def options(self) -> dict[str, str]:
        """Return the arguments of ``DefaultAzureCredential``; what is left out comes from the environment."""
        return {name: value for name, value in asdict(self).items() if value}


def service_of(fields: Fields, suffix: str) -> Service:
    """Read where the service is.

    :raises InputError: There is no account, or the host is not the account's and not this machine.
    """
    account = fields.text("account_name")
    url, host = url_of(fields)
    if host and not account and not is_loopback(host):
        account = host.partition(".")[0]
    if not account:
        raise fields.bad("account_name", account, "the name of the account")
    if not _ACCOUNT.fullmatch(account):
        raise fields.bad("account_name", account, "letters, digits and hyphens")
    authority = f"{account.lower()}.{suffix}"
    if host and not is_loopback(host):
        if host.partition(".")[0] != account.lower():
            # A token is for the account alone: a host of another name does not get it.
            raise fields.bad("host", fields.host, f"{authority}, or a URL of this machine")
        authority = host
    return Service(
        url=url or f"https://{authority}",
        authority=authority,
        requests={
            **fields.requests(),
            "retry_on_error_messages": fields.texts("retry_on_error_messages", QUEUE_FULL),
        },
    )


def defaults_of(fields: Fields) -> ScopeDefaults:
    """Read the defaults of jobs.

    :raises InputError: A value is not valid.
    """
    seed = ScopeDefaults()
    return ScopeDefaults(
        au=fields.integer("au", seed.au, at_least=1),
        priority=fields.integer("priority", seed.priority, at_least=1),
        job_timeout_seconds=fields.number("job_timeout_seconds", seed.job_timeout_seconds, at_least=1),
        feature_previews=fields.text("feature_previews") or seed.feature_previews,
        poll_interval=fields.number("poll_interval", seed.poll_interval, at_least=0.1),
        max_files_per_trigger=fields.integer("max_files_per_trigger", seed.max_files_per_trigger, at_least=1),
        max_bytes_per_trigger=fields.size("max_bytes_per_trigger", seed.max_bytes_per_trigger),
        delta_root=_delta_root(fields),
    )


def _delta_root(fields: Fields) -> str | None:
    account, container = fields.text("storage_account"), fields.text("container")
    if not account and not container:
        return None
    for name, value in (("storage_account", account), ("container", container)):
        if not value or not _ACCOUNT.fullmatch(value):
            raise fields.bad(name, value, "letters, digits and hyphens; both or none")
    base = (fields.text("delta_base_path") or "").strip("/")
    root = f"abfss://{container}@{account}.dfs.core.windows.net"
    return f"{root}/{base}" if base else root


def url_of(fields: Fields) -> tuple[str, str]:
    """Return the URL that the host field means, and its host; empty texts if there is none."""
    text = fields.host.strip().rstrip("/")
    if not text:
        return "", ""
    if "://" not in text:
        text = f"{fields.scheme}://{text}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise fields.bad("host", "…", "a host or a URL") from None
    if "@" in parts.netloc:
        raise fields.bad("host", "…", "a host or a URL without a user")
    if fields.port and port is None:
        text = text.replace(parts.netloc, f"{parts.netloc}:{fields.port}", 1)
    return text, host


def connection_of(conn_id: str) -> Connection:
    """Read a connection.

    :raises ConnectionMissingError: Airflow has none of this id, or its store of secrets does not answer.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as err:
        raise connection_missing(conn_id) from err


def fields_of(conn_id: str | None, connection: Connection | None) -> Fields | None:
    """Read the fields of a connection, or of the one of this id; None if none is named."""
    if connection is None and conn_id:
        connection = connection_of(conn_id)
    return Fields(connection) if connection else None


def connection_missing(conn_id: str) -> ConnectionMissingError:
    return ConnectionMissingError(
        f"Airflow has no connection {conn_id!r}.",
        kept="everything; nothing was read or written",
        do=f"define it (`airflow connections add {conn_id} …`, the UI, or the variable "
        f"AIRFLOW_CONN_{conn_id.upper()}), or correct its name in the Dag or in the options of the command. "
        "If it is defined, the secrets backend did not answer: Airflow reports both in the same way, and the "
        "next try asks again",
    )
