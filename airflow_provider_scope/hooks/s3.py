"""As whom a connection of type ``aws`` reaches S3: botocore and Spark alike. It needs no Amazon provider."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_scope.exceptions import of_extra
from airflow_provider_scope.hooks.settings import fields_of
from airflow_provider_scope.stores.protocol import Store
from airflow_provider_scope.stores.s3 import CONFIG, S3Storage, is_aws

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.common.compat.sdk import Connection

    from airflow_provider_scope.hooks.settings import Fields

_S3A = "spark.hadoop.fs.s3a"
_PROVIDERS = "org.apache.hadoop.fs.s3a"
_TYPES = ("aws", "s3", "generic")
_NOT_SUPPORTED = ("role_arn", "profile_name", "aws_account_id", "assume_role_method", "session_kwargs")
"""Fields of Amazon's provider that make another identity of the one that is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """An identity, and where its service is."""

    key_id: str | None = None
    secret: str = field(default="", repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str | None = None
    endpoint: str | None = None
    """URL of a store that is not at AWS's own address."""
    path_style: bool = False
    """Whether the bucket stands in the path of a URL, and not in its host."""
    verify: bool | str | None = None
    """Whether TLS is checked, or the file with the authorities; None is by botocore's default."""

    def client(self, *, timeout_seconds: float = 60.0) -> Any:
        """Make botocore's client.

        :param timeout_seconds: For the connection, and for each wait for a part of the answer.
        :raises InputError: botocore is not installed.
        """
        # Not with the module: it takes 0.3 s, and Dag files import this one.
        with of_extra("s3", "A location on S3"):
            from botocore.config import Config
            from botocore.session import Session

        style = {"addressing_style": "path"} if self.path_style else {}
        session = Session()
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time)
        return session.create_client(
            "s3",
            region_name=self.region,
            endpoint_url=self.endpoint,
            verify=self.verify,
            aws_access_key_id=self.key_id,
            aws_secret_access_key=self.secret or None,
            aws_session_token=self.session_token,
            config=Config(s3=style, connect_timeout=timeout_seconds, read_timeout=timeout_seconds, **CONFIG),
        )

    def spark_conf(self) -> dict[str, str]:
        """Return the properties with which Hadoop's S3A client is the same identity; secrets included."""
        conf: dict[str, str] = {}
        if self.key_id:
            provider = "Temporary" if self.session_token else "Simple"
            conf = {
                "aws.credentials.provider": f"{_PROVIDERS}.{provider}AWSCredentialsProvider",
                "access.key": self.key_id,
                "secret.key": self.secret,
            }
        if self.session_token:
            conf["session.token"] = self.session_token
        if self.region:
            conf["endpoint.region"] = self.region
        if self.endpoint:
            conf["endpoint"] = self.endpoint
            conf.setdefault("endpoint.region", "us-east-1")  # any will do, and without one Hadoop asks AWS
            conf["connection.ssl.enabled"] = str(self.endpoint.startswith("https://")).lower()
        if self.path_style:
            conf["path.style.access"] = "true"
        return {f"{_S3A}.{name}": value for name, value in conf.items()}


def _time(value: Any) -> datetime:
    """Read a time of an answer; botocore's own way takes most of the time of a listing."""
    from botocore.utils import parse_timestamp

    with suppress(TypeError, ValueError):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo:
            return moment
    parsed: datetime = parse_timestamp(value)
    return parsed


def open_store(_: str, conn_id: str | None, connection: Connection | None) -> Store:
    """Open the buckets that a connection reaches; without one as whoever the worker is.

    :raises InputError: The connection cannot be used for S3.
    """
    fields = fields_of(conn_id, connection)
    access = access_of(fields) if fields else S3Access()
    client = access.client()
    # The environment and AWS's files may say more than the connection, and Hadoop reads other ones.
    region, endpoint = client.meta.region_name, client.meta.endpoint_url
    access = replace(
        access,
        region=access.region or (None if region == "aws-global" else region),
        endpoint=access.endpoint or (None if is_aws(endpoint) else endpoint),
    )
    return Store(storage=S3Storage(client), spark_conf=access.spark_conf())


def access_of(fields: Fields) -> S3Access:
    """Read a connection: the fields of the type ``aws``, as Amazon's provider has them.

    :raises InputError: It makes another identity of the one that it names, or half of a key is missing.
    """
    if fields.conn_type not in _TYPES:
        raise fields.bad("conn_type", fields.conn_type, "aws: its key is for another service")
    for name in _NOT_SUPPORTED:
        if fields.get(name):
            raise fields.bad(name, "…", "nothing: only a key, or the worker's own identity, is supported")
    key_id = fields.login or fields.text("aws_access_key_id")
    secret = fields.password or fields.secret("aws_secret_access_key")
    if bool(key_id) != bool(secret):
        missing = "password" if key_id else "login"
        raise fields.bad(
            missing, "", "the other half of the access key: login is its id, password its secret"
        )
    service = _mapping(_mapping(fields.get("service_config")).get("s3"))
    endpoint = service.get("endpoint_url") or fields.text("endpoint_url")
    style = _mapping(_mapping(fields.get("config_kwargs")).get("s3")).get("addressing_style")
    return S3Access(
        key_id=key_id,
        secret=secret or "",
        session_token=fields.secret("aws_session_token"),
        region=fields.text("region_name"),
        endpoint=endpoint.rstrip("/") if endpoint else None,
        path_style=style == "path" or (bool(endpoint) and style is None),
        verify=fields.get("verify"),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
