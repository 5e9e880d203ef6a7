"""Secrets do not appear in errors."""

from __future__ import annotations

import pytest

from airflow_provider_scope.exceptions import mask

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abc.def-ghi, 401", "Authorization: Bearer ***, 401"),
        ("Authorization: SharedKey acme:c2lnbmF0dXJl=", "Authorization: SharedKey acme:***"),
        ("token eyJ0eXAi.eyJhdWQi.c2ln was refused", "token *** was refused"),
        ('station: "token=abcdef123456"', 'station: "token=***"'),
        ("https://acme/in/a?sv=2025&sig=a%2Fb%3D&se=1", "https://acme/in/a?sv=2025&sig=***&se=1"),
        ("sig=a%2Fb%3D", "sig=***"),
        (
            "url: /webhdfs/v1/a?op=OPEN&delegation=SAAG_x&offset=0",
            "url: /webhdfs/v1/a?op=OPEN&delegation=***&offset=0",
        ),
        (f"AccountName=acme;AccountKey={KEY};X=1", "AccountName=acme;AccountKey=***;X=1"),
        (f"the key is {KEY}.", "the key is ***."),
        ("{'client_secret': 'abc'}", "{'client_secret': '***'}"),
        ("aws_secret_access_key=abc", "aws_secret_access_key=***"),
        ("SharedAccessSignature=sv=1", "SharedAccessSignature=***"),
        ("the design=a, assigned=b", "the design=a, assigned=b"),
        ("etag 0x1FF429D74BCEE10 of a.parquet", "etag 0x1FF429D74BCEE10 of a.parquet"),
    ],
)
def test_secrets_are_hidden_and_the_rest_stays(text: str, masked: str) -> None:
    assert mask(text) == masked


def test_a_given_secret_is_hidden_wherever_it_stands() -> None:
    assert mask("x hunter2 y/hunter2", "", "hunter2") == "x *** y/***"
