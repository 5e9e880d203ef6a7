"""What goes wrong on the way: a write happens once, and nothing unreadable is taken for absent."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_scope.exceptions import (
    ScopeProviderError,
    SourceNotFoundError,
    SourceRefusedError,
    SourceUnreadableError,
    StorageError,
)
from tests.support.connecting import connect
from tests.support.faulty_service import Answer, Fault, FaultyService, in_front_of
from tests.support.storages import AZURITE, GEN1_EMULATOR, HDFS, S3, WEBHDFS_EMULATOR, Backend, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_provider_scope.stores.protocol import Storage

SERVICES = [AZURITE.param, S3.param, GEN1_EMULATOR.param, WEBHDFS_EMULATOR.param, HDFS.param]


@dataclass(frozen=True)
class Way:
    """A storage whose way to its service goes wrong as told."""

    storage: Storage
    direct: Storage
    """Another writer's, whose way is good."""
    place: Place
    service: FaultyService
    backend: str

    def fail(self, what: str, **how: Any) -> None:
        """Set a fault of the requests that create, replace, delete, read or list."""
        self.service.faults.append(Fault(_REQUESTS[self.backend][what], **how))

    def refusal(self, status: int, code: str, text: str = "text", **headers: str) -> Answer:
        """A refusal in the service's own form."""
        if self.backend == "s3":
            body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"
            return Answer(status, headers | {"Content-Type": "application/xml"}, body.encode())
        if self.backend == "azurite":
            body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{text}</Message></Error>'
            headers |= {"x-ms-error-code": code, "Content-Type": "application/xml"}
            return Answer(status, headers, body.encode())
        body = f'{{"RemoteException": {{"exception": "{code}", "message": "{text}"}}}}'
        return Answer(status, headers, body.encode())


def _is(method: str, *parts: str) -> Callable[[str, str], bool]:
    return lambda asked, target: asked == method and all(part in target for part in parts)


_BLOB: dict[str, Callable[[str, str], bool]] = {
    "create": _is("PUT"),
    "replace": _is("PUT"),
    "write": _is("PUT"),
    "delete": _is("DELETE"),
    "read": lambda method, target: method == "GET" and "comp=list" not in target,
    "list": _is("GET", "comp=list"),
    "any": lambda method, target: True,
}
_HDFS: dict[str, Callable[[str, str], bool]] = {
    "create": _is("PUT", "op=RENAME"),
    "replace": _is("PUT", "op=RENAME"),
    "write": _is("PUT", "op=CREATE"),
    "delete": lambda method, target: method == "DELETE" and ".tmp" not in target,
    "read": _is("GET", "op=OPEN"),
    "list": _is("GET", "op=LISTSTATUS"),
    "any": lambda method, target: True,
}
_S3: dict[str, Callable[[str, str], bool]] = {
    **_BLOB,
    # Not the trial that comes before the first one.
    **dict.fromkeys(("create", "write"), lambda method, target: method == "PUT" and ".probe" not in target),
    "read": lambda method, target: method == "GET" and "list-type=2" not in target,
    "list": _is("GET", "list-type=2"),
}
_FLAT = ("azurite", "s3")
"""Stores of which each call is one request, and whose listings have pages."""
_REQUESTS = {"azurite": _BLOB, "s3": _S3, "gen1": _HDFS, "webhdfs": _HDFS, "hdfs": _HDFS}


@pytest.fixture(params=SERVICES)
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


@pytest.fixture
def way(backend: Backend, tmp_path: Path) -> Iterator[Way]:
    with backend.make(tmp_path) as place, in_front_of(place.address) as service:
        storage = connect(place.uri, service.url, page_size=3)
        yield Way(storage, place.storage, place, service, backend.name)


SERVER_ERRORS = {
    "503": Answer(503, {"x-ms-error-code": "ServerBusy"}),
    "500": Answer(500),
    "429": Answer(429, {"Retry-After": "1"}),
}
PASSING = [
    pytest.param({"takes_effect": True}, id="the answer gets lost"),
    pytest.param({}, id="the request gets lost"),
    pytest.param({"takes_effect": True, "answer": SERVER_ERRORS["500"]}, id="500 after it took effect"),
    pytest.param({"takes_effect": True, "answer": SERVER_ERRORS["503"]}, id="503 after it took effect"),
    pytest.param({"answer": SERVER_ERRORS["503"]}, id="503"),
    pytest.param({"answer": SERVER_ERRORS["429"]}, id="429"),
]


# ---- what passes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["create", "write"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", PASSING)
def test_a_creation_that_goes_wrong_on_the_way_makes_one_file(
    way: Way, step: str, how: dict[str, Any], times: int
) -> None:
    way.fail(step, times=times, **how)

    assert way.storage.put_if_absent(way.place.at("log/0"), b"ours") == b"ours"
    assert way.direct.put_if_absent(way.place.at("log/0"), b"theirs") == b"ours"
    assert way.direct.read(way.place.at("log/0")) == b"ours"
    assert [file.path for file in way.direct.walk(way.place.uri)] == [way.place.at("log/0")]


@pytest.mark.parametrize("how", [{}, {"answer": SERVER_ERRORS["503"]}])
def test_a_creation_that_another_writer_overtakes_says_so(way: Way, how: dict[str, Any]) -> None:
    path = way.place.at("log/0")
    way.fail("create", meanwhile=lambda: way.direct.put_if_absent(path, b"theirs"), **how)

    assert way.storage.put_if_absent(path, b"ours") == b"theirs"
    assert way.direct.read(path) == b"theirs"


def test_a_creation_whose_file_another_one_replaces_before_the_answer_is_not_ours_any_more(way: Way) -> None:
    path = way.place.at("log/0")
    way.fail("create", takes_effect=True, meanwhile=lambda: way.direct.replace(path, b"theirs"))

    assert way.storage.put_if_absent(path, b"ours") == (b"theirs" if way.backend in _FLAT else b"ours")
    assert way.direct.read(path) == b"theirs"


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_answer_that_never_comes_is_waited_for_so_long(way: Way, takes_effect: bool) -> None:
    impatient = connect(way.place.uri, way.service.url, timeout_seconds=1.0)
    way.fail("create", hang=True, takes_effect=takes_effect)

    assert impatient.put_if_absent(way.place.at("log/0"), b"ours") == b"ours"
    assert way.direct.read(way.place.at("log/0")) == b"ours"


@pytest.mark.parametrize("step", ["replace", "write"])
@pytest.mark.parametrize("how", PASSING)
def test_a_replacement_that_goes_wrong_on_the_way_takes_effect(
    way: Way, step: str, how: dict[str, Any]
) -> None:
    way.direct.replace(way.place.at("a"), b"old")
    way.fail(step, **how)

    way.storage.replace(way.place.at("a"), b"new")

    assert way.direct.read(way.place.at("a")) == b"new"
    assert way.direct.names(way.place.uri) == ["a"]


@pytest.mark.parametrize("how", PASSING)
def test_a_deletion_that_goes_wrong_on_the_way_takes_effect(way: Way, how: dict[str, Any]) -> None:
    way.direct.replace(way.place.at("a"), b"1")
    way.fail("delete", **how)

    way.storage.delete(way.place.at("a"))

    assert way.direct.read(way.place.at("a")) is None


@pytest.mark.parametrize("how", [*PASSING, pytest.param({"takes_effect": True, "cut": True}, id="cut")])
@pytest.mark.parametrize("what", ["read", "list"])
def test_what_is_read_is_whole_though_something_goes_wrong_on_the_way(
    way: Way, what: str, how: dict[str, Any]
) -> None:
    for n in range(7):
        way.direct.replace(way.place.at(f"in/{n}"), b"x" * 100_000)
    way.fail(what, skip=1 if way.backend in _FLAT and what == "list" else 0, **how)

    assert way.storage.read(way.place.at("in/0")) == b"x" * 100_000
    assert sorted(file.path for file in way.storage.walk(way.place.uri)) == [
        way.place.at(f"in/{n}") for n in range(7)
    ]
    assert way.storage.names(way.place.at("in")) == list("0123456")


# ---- what does not pass -----------------------------------------------------------------------------

LASTING = [
    pytest.param(None, id="no answer"),
    pytest.param(SERVER_ERRORS["503"], id="503"),
    pytest.param(SERVER_ERRORS["429"], id="429"),
    pytest.param(Answer(404, {}, b"<html>a proxy's page</html>"), id="404 of a proxy"),
    # What Azure says to somebody without a key who may not know.
    pytest.param(Answer(404, {"x-ms-error-code": "ResourceNotFound"}), id="404 without rights"),
    pytest.param(Answer(407), id="407"),
    pytest.param(Answer(200, {}, b"<html>a login page</html>"), id="200 of a proxy"),
]


@pytest.mark.parametrize("answer", LASTING)
def test_what_cannot_be_read_is_an_error_and_never_absent(way: Way, answer: Answer | None) -> None:
    way.direct.replace(way.place.at("in/a"), b"1")
    way.fail("list", answer=answer, times=1000)
    storage, place = way.storage, way.place

    with pytest.raises(StorageError) as caught:
        storage.names(place.at("in"))
    assert place.at("in") in caught.value.what
    with pytest.raises(SourceUnreadableError):
        list(storage.walk(place.at("in")))


@pytest.mark.parametrize("answer", LASTING[:-1])
def test_a_control_file_that_cannot_be_reached_is_an_error(way: Way, answer: Answer | None) -> None:
    path = way.place.at("in/a")
    way.direct.replace(path, b"1")
    way.fail("any", answer=answer, times=1000)

    for call in (
        lambda: way.storage.read(path),
        lambda: way.storage.put_if_absent(path, b"2"),
        lambda: way.storage.replace(path, b"2"),
        lambda: way.storage.delete(path),
    ):
        with pytest.raises(StorageError) as caught:
            call()
        assert path in caught.value.what
        assert caught.value.is_retryable
    assert way.direct.read(path) == b"1"


def test_a_creation_whose_answers_all_get_lost_stays_undecided_and_can_be_read_back(way: Way) -> None:
    path = way.place.at("log/0")
    cut_off = way.service.faults.append
    way.fail(
        "create",
        takes_effect=True,
        meanwhile=lambda: cut_off(Fault(lambda method, target: True, times=1000)),
    )

    with pytest.raises(StorageError):
        way.storage.put_if_absent(path, b"ours")

    assert way.direct.read(path) == b"ours"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (409, "BlobImmutableDueToPolicy"),
        (409, "ContainerBeingDeleted"),
        (412, "LeaseIdMissing"),
        (412, "ConditionNotMet"),
        (412, "PreconditionFailed"),
        (409, "ConditionalRequestConflict"),
    ],
)
def test_a_conflict_is_not_taken_for_a_file_that_exists(way: Way, status: int, code: str) -> None:
    path = way.place.at("log/0")
    way.fail("create", answer=way.refusal(status, code), times=1000)

    with pytest.raises(StorageError):
        way.storage.put_if_absent(path, b"ours")

    assert way.direct.read(path) is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_not_taken_for_absence(way: Way, status: int) -> None:
    code = {401: "NoAuthenticationInformation", 403: "AuthorizationPermissionMismatch"}[status]
    code = {"azurite": code, "s3": "AccessDenied"}.get(way.backend, "AccessControlException")
    way.fail("any", answer=way.refusal(status, code), times=1000)

    with pytest.raises(SourceRefusedError):
        list(way.storage.walk(way.place.at("in")))
    for call in (way.storage.read, way.storage.names, way.storage.delete):
        with pytest.raises(StorageError):
            call(way.place.at("in"))
    with pytest.raises(StorageError):
        way.storage.put_if_absent(way.place.at("in"), b"1")


def test_a_root_that_does_not_exist_is_told_from_one_that_cannot_be_looked_at(way: Way) -> None:
    with pytest.raises(SourceNotFoundError):
        list(way.storage.walk(way.place.at("nothing")))

    looked = _is("HEAD") if way.backend == "azurite" else _REQUESTS[way.backend]["list"]
    # On S3 the root itself is looked at by a second listing.
    skip = 1 if way.backend == "s3" else 0
    way.service.faults.append(Fault(looked, answer=Answer(503), times=1000, skip=skip))
    with pytest.raises(SourceUnreadableError):
        list(way.storage.walk(way.place.at("nothing")))


def test_secrets_in_an_answer_are_not_in_the_error(way: Way) -> None:
    secret = "c2VjcmV0LXNpZ25hdHVyZQ%3D%3D"
    text = (
        f"https://acme.blob.core.windows.net/in?sv=2025&amp;sig={secret} Bearer {secret} AccountKey={secret}"
    )
    code = "AuthenticationFailed" if way.backend == "azurite" else "SecurityException"
    way.fail("any", answer=way.refusal(403, code, text), times=1000)
    errors: list[ScopeProviderError] = []

    for call in (
        lambda: list(way.storage.walk(way.place.uri)),
        lambda: way.storage.names(way.place.uri),
        lambda: way.storage.read(way.place.at("a")),
        lambda: way.storage.put_if_absent(way.place.at("a"), b"1"),
        lambda: way.storage.replace(way.place.at("a"), b"1"),
        lambda: way.storage.delete(way.place.at("a")),
    ):
        with pytest.raises(ScopeProviderError) as caught:
            call()
        errors.append(caught.value)

    for error in errors:
        assert "***" in str(error) or secret not in str(error)
        assert secret not in "".join(traceback.format_exception(error))
