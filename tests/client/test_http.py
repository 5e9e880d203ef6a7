"""What is tried again, what is not, and where a token goes."""

from __future__ import annotations

import logging
import socket

import pytest

from airflow_provider_scope.exceptions import (
    InputError,
    ServiceAuthError,
    ServiceOutcomeUnknownError,
    ServiceProtocolError,
    ServiceRefusedError,
    ServiceUnavailableError,
)
from airflow_provider_scope.stores import http
from airflow_provider_scope.stores.calls import Repeating, without_secrets
from tests.client.server import DROP, Reply, client_of, fixed_tokens, serving

OK = Reply(200, b"fine")
BUSY = Reply(503, b"busy")


def refused_text(server, reply):
    server.answers = [reply]
    error = client_of(server.url).request("GET", "/x", doing="read it").error("read it")
    return type(error), error.what


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, {"error": {"code": "JobNotFound", "message": "Job is not found."}},
         "404 JobNotFound: Job is not found."),
        (400, {"Message": "Cannot exceed 1000 queued SCOPE jobs in an ADLA workspace."},
         "400: Cannot exceed 1000 queued SCOPE jobs in an ADLA workspace."),
        (400, {"message": "small letters"}, "400: small letters"),
        (404, {"RemoteException": {"exception": "FileNotFoundException", "message": "No /p [id][time]",
                                   "javaClassName": "java.io.FileNotFoundException"}},
         "404 FileNotFoundException: No /p [id][time]"),
        (400, {"error": "invalid_request", "error_description": "no scope"}, "400 invalid_request: no scope"),
        (400, b"plain words", "400: plain words"),
        (400, b"", "400"),
        (400, b"[1, 2]", "400: [1, 2]"),
        (400, {"unheard": "of"}, '400: {"unheard": "of"}'),
        (400, b"\xff\xfe", "400: \ufffd\ufffd"),
    ],
)  # fmt: skip
def test_every_shape_of_an_error_body_keeps_its_text(server, status, body, expected):
    assert refused_text(server, Reply(status, body)) == (
        ServiceRefusedError,
        f"Could not read it: {expected}.",
    )


def test_the_request_id_of_a_refusal_is_in_its_text(server):
    _, text = refused_text(server, Reply(400, b"no", {"x-ms-request-id": "abc"}))

    assert text == "Could not read it: 400: no (request id abc)."


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessControlException", ServiceAuthError),
        ("ForbiddenException", ServiceAuthError),
        ("SecurityException", ServiceAuthError),
        ("AuthenticationException", ServiceAuthError),
        ("InvalidToken", ServiceAuthError),
        ("", ServiceAuthError),
        ("FileAlreadyExistsException", ServiceRefusedError),
        ("IOException", ServiceRefusedError),
        ("StandbyException", ServiceRefusedError),
        ("SafeModeException", ServiceRefusedError),
        ("DSQuotaExceededException", ServiceRefusedError),
    ],
)
def test_a_403_is_about_rights_unless_its_code_says_otherwise(server, code, kind):
    body = {"RemoteException": {"exception": code, "message": "m"}}

    assert refused_text(server, Reply(403, body))[0] is kind


def test_errors_of_the_server_and_of_the_network_are_tried_again_with_longer_waits(server, waits):
    server.answers = [BUSY, DROP, Reply(408), OK]

    answer = client_of(server.url, waits).request("GET", "/x", doing="read it")

    assert answer.body == b"fine"
    assert waits == [1.0, 2.0, 4.0]


def test_waits_are_jittered_and_have_an_upper_bound(waits):
    repeating = Repeating(sleep=waits, jitter=lambda: 0.0)
    for failures in (1, 2, 3, 10):
        repeating.pause(failures)

    assert waits == [0.5, 1.0, 2.0, 15.0]


def test_the_tries_end(server, waits):
    server.answers = [BUSY] * 10

    with pytest.raises(ServiceUnavailableError) as caught:
        client_of(server.url, waits, retries=2).request("GET", "/x", doing="read it")

    assert caught.value.what == "Could not read it in 3 tries: 503: busy."
    assert caught.value.is_retryable
    assert len(server.asked) == 3


def test_a_body_that_ends_too_early_is_no_answer(server):
    server.answers = [Reply(200, b"fi", cut=True), OK]

    assert client_of(server.url).request("GET", "/x", doing="read it").body == b"fine"


@pytest.mark.parametrize("status", [400, 404, 409, 418])
def test_a_refusal_is_not_tried_again(server, waits, status):
    server.answers = [Reply(status), OK]

    assert client_of(server.url, waits).request("GET", "/x", doing="read it").status == status
    assert waits == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("Tue, 14 Nov 2023 22:13:40 GMT", 20.0),  # NOW is 22:13:20
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("86400", 120.0),
        ("soon", 1.0),
        ("Wed, 21 Oct 9999 23:5925912359", 1.0),
    ],
)
def test_a_throttled_request_waits_as_long_as_the_service_asks(server, waits, value, seconds):
    server.answers = [Reply(429, b"slow down", {"Retry-After": value}), OK]

    assert client_of(server.url, waits).request("PUT", "/x", doing="put it", repeatable=False).ok
    assert waits == [seconds]


@pytest.mark.parametrize("reply", [DROP, BUSY, Reply(500), Reply(200, b"{", cut=True)])
def test_a_request_that_must_not_happen_twice_is_not_repeated_when_it_may_have_happened(server, waits, reply):
    server.answers = [reply, OK]

    with pytest.raises(ServiceOutcomeUnknownError, match="not known whether the service could put it"):
        client_of(server.url, waits).request("PUT", "/x", doing="put it", repeatable=False)

    assert len(server.asked) == 1


def test_a_request_that_did_not_arrive_is_repeated_whatever_it_does(waits):
    with socket.socket() as nobody:  # bound, and not listening: connections are refused
        nobody.bind(("127.0.0.1", 0))
        client = client_of(f"http://127.0.0.1:{nobody.getsockname()[1]}", waits)

        with pytest.raises(ServiceUnavailableError) as caught:
            client.request("PUT", "/x", doing="put it", repeatable=False)

    assert type(caught.value) is ServiceUnavailableError
    assert waits == [1.0, 2.0, 4.0]


def test_a_service_that_is_silent_is_a_failure(server, waits):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = client_of(
            f"http://127.0.0.1:{silent.getsockname()[1]}", waits, timeout_seconds=0.05, retries=1
        )

        with pytest.raises(ServiceUnavailableError, match="ReadTimeout"):
            client.request("GET", "/x", doing="read it")


FULL = Reply(400, {"Message": "Cannot exceed 1000 queued SCOPE jobs in an ADLA workspace."})


@pytest.mark.parametrize("pattern", ["queued SCOPE jobs", r"re:Cannot exceed \d+ queued", "cannot EXCEED"])
def test_a_refusal_with_one_of_the_named_texts_is_tried_again(server, waits, pattern):
    server.answers = [FULL, FULL, OK]
    client = client_of(server.url, waits, retry_on_error_messages=[pattern], retries=0)

    assert client.request("PUT", "/x", doing="put it", repeatable=False).ok
    assert waits == [1.0, 2.0]


def test_a_refusal_with_one_of_the_named_texts_is_left_to_the_next_try_after_25_tries(server, waits):
    server.answers = [FULL] * 30
    client = client_of(server.url, waits, retry_on_error_messages=["queued SCOPE jobs"])

    with pytest.raises(ServiceUnavailableError, match=r"in 25 tries: 400: Cannot exceed 1000 queued") as full:
        client.request("PUT", "/x", doing="put it", repeatable=False)

    assert full.value.is_retryable
    assert len(server.asked) == 25
    assert max(waits) == 30.0


def test_a_plain_fragment_is_not_a_regular_expression(server):
    server.answers = [Reply(400, b"abc"), OK]

    assert client_of(server.url, retry_on_error_messages=["a.c"]).request("GET", "/x", doing="").status == 400


def test_a_pattern_that_is_no_regular_expression_is_refused():
    with pytest.raises(InputError, match=r"'re:\(', which is not a regular expression"):
        client_of("http://127.0.0.1:1", retry_on_error_messages=["re:("])


def test_a_token_that_is_refused_is_replaced_once(server):
    server.answers = [Reply(401), OK, Reply(401), Reply(401, b"still no"), OK]
    client = client_of(server.url, tokens=fixed_tokens("token-1", "token-2", "token-3"))

    assert client.request("GET", "/x", doing="read it").ok
    answer = client.request("GET", "/x", doing="read it")

    assert isinstance(answer.error("read it"), ServiceAuthError)
    assert server.bearers == [f"Bearer token-{n}" for n in (1, 2, 2, 3)]


@pytest.mark.parametrize(
    "url",
    [
        "http://acme.azuredatalakeanalytics.net",
        "http://10.0.0.1",
        "http://localhost.example.com",
        "ftp://127.0.0.1",
        "https://user:pass@acme.azuredatalakeanalytics.net",
        "https://acme.azuredatalakeanalytics.net/?x=1",
        "https://acme\\@127.0.0.1/",
        "acme",
        "https://acme:port",
    ],
)
def test_a_url_that_a_token_must_not_be_sent_to_is_refused(url):
    with pytest.raises(InputError) as caught:
        client_of(url)

    assert "pass" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://a.b", "http://localhost:1", "http://[::1]:1", "http://127.0.0.2/acct/"]
)
def test_https_and_this_machine_are_where_a_token_may_go(url):
    assert client_of(url).base_url == url.rstrip("/")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_is_an_error_and_the_token_does_not_go_there(server, status):
    with serving() as other:
        server.answers = [Reply(status, b"", {"Location": other.url + "/x"})]

        with pytest.raises(ServiceProtocolError):
            client_of(server.url).request("GET", "/x", doing="read it")

        assert other.asked == []


def test_a_link_to_another_host_is_an_error_and_the_token_does_not_go_there(server):
    with serving() as other, pytest.raises(ServiceProtocolError, match="leads to another host"):
        client_of(server.url).request("GET", other.url + "/x?sig=abc", doing="read it")

    assert other.asked == server.asked == []


def test_webhdfs_redirects_at_the_same_service_are_followed_with_method_and_body(server):
    server.answers = [Reply(307, b"", {"Location": server.url + "/y?z=1"}), OK]

    answer = client_of(server.url).request("PUT", "/x", doing="put it", params={"a": "b"}, data=b"data")

    assert answer.ok
    assert [(a.method, a.raw, a.body) for a in server.asked] == [
        ("PUT", "/x?a=b", b"data"),
        ("PUT", "/y?z=1", b"data"),
    ]


def test_redirects_without_end_are_an_error(server):
    server.answers = lambda _: Reply(307, b"", {"Location": "/x"})

    with pytest.raises(ServiceProtocolError, match="more than 3 redirects"):
        client_of(server.url).request("GET", "/x", doing="read it")


def test_a_proxy_of_the_environment_does_not_see_the_token_of_this_machine(server, monkeypatch):
    server.answers = [OK]
    with serving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")

        assert client_of(server.url).request("GET", "/x", doing="read it").ok
        assert proxy.asked == []


def test_credentials_of_netrc_do_not_replace_the_token(server, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.answers = [OK]
    client = client_of(server.url)
    client._session.trust_env = True  # as it is for https

    client.request("GET", "/x", doing="read it")

    assert server.bearers == ["Bearer token-1"]


def test_cookies_are_not_kept(server):
    server.answers = [Reply(200, b"", {"Set-Cookie": "a=b"}), OK]
    client = client_of(server.url)

    client.request("GET", "/x", doing="read it")
    client.request("GET", "/x", doing="read it")

    assert "cookie" not in server.asked[1].headers


def test_an_answer_that_is_too_large_is_not_read_to_its_end(server, monkeypatch):
    monkeypatch.setattr(http, "BODY_LIMIT_BYTES", 10)
    server.answers = [Reply(200, b"x" * 11)]

    with pytest.raises(ServiceProtocolError, match="more than 10 bytes"):
        client_of(server.url).request("GET", "/x", doing="read it")


SECRET = "s3cr3t-token-value"
TELLING = (
    f"bad token {SECRET}; Authorization: Bearer abc.def; eyJhbGciOi.eyJzdWIi.c2ln; "
    "https://a/b?sv=1&sig=aBc%2B1&x=2; AccountKey=kkk==; client_secret=sss; "
    '"access_token": "ttt"'
)


@pytest.mark.parametrize("status", [400, 401, 503])
def test_secrets_are_in_no_error_no_repr_and_no_log(server, caplog, status):
    caplog.set_level(logging.DEBUG)
    server.answers = lambda _: Reply(status, TELLING.encode())
    client = client_of(
        server.url, tokens=fixed_tokens(SECRET), retry_on_error_messages=["bad token"], retries=1
    )

    if status != 401:
        with pytest.raises(ServiceUnavailableError) as caught:
            client.request("GET", "/x", doing="read it")
        text = str(caught.value)
    else:
        answer = client.request("GET", "/x", doing="read it")
        text = f"{answer} {answer.error('read it')} {answer.error('read it')!r}"
    text += caplog.text + repr(client) + repr(client._tokens) + repr(client._tokens._token)

    for secret in (SECRET, "abc.def", "eyJ", "aBc", "kkk", "sss", "ttt"):
        assert secret not in text
    assert "bad token ***" in text
    assert "&x=2" in text


def test_an_error_or_a_cause_of_it_that_holds_a_secret_is_no_cause_of_ours():
    clean, telling, outer = OSError("refused"), OSError("https://a/b?sig=aBc%2B1"), OSError("failed")
    outer.__cause__ = telling

    assert [without_secrets(err) for err in (clean, telling, outer)] == [clean, None, None]


def test_a_very_long_text_is_cut(server):
    assert len(refused_text(server, Reply(400, b"x" * 100_000))[1]) < 2100
