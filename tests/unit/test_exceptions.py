"""Every error keeps its three parts, wherever it goes."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import pickle
from pathlib import Path

import pytest

from airflow_provider_scope import exceptions
from airflow_provider_scope.exceptions import InputError, ScopeProviderError, StorageError, mask

PACKAGE = Path(exceptions.__file__).parent
CLASSES = [
    value
    for value in vars(exceptions).values()
    if inspect.isclass(value) and issubclass(value, ScopeProviderError)
]
RETRYABLE = {
    "ConnectionMissingError",
    "SourceNotFoundError",
    "SourceEmptyError",
    "SourceUnreadableError",
    "RecordsVacuumedError",
    "StorageError",
    "TableUnreadableError",
    "BatchNotInTableError",
    "EngineError",
    "SparkJobFailedError",
    "DeltaJarsError",
    "JobNotEndedError",
    "JobRunningError",
    "ScopeJobFailedError",
    "ServiceAuthError",
    "ServiceOutcomeUnknownError",
    "ServiceUnavailableError",
    "SourceRefusedError",
}


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_keeps_its_class_and_parts_wherever_it_is_sent(
    cls: type[ScopeProviderError],
) -> None:
    error = cls("It broke.", kept="the rows", do="mend it")

    sent = ScopeProviderError.from_dict(json.loads(json.dumps(error.to_dict())))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error), sent):
        assert type(again) is cls
        assert (again.what, again.kept, again.do) == ("It broke.", "the rows", "mend it")
        assert again.args == ("It broke.",)


def test_an_error_of_an_unknown_class_becomes_the_one_that_is_expected_there() -> None:
    parts = {"type": "OfTomorrowError", "what": "It broke.", "kept": "", "do": ""}

    assert type(StorageError.from_dict(parts)) is StorageError


def test_only_errors_that_another_try_can_mend_are_retryable() -> None:
    assert {cls.__name__ for cls in CLASSES if cls.is_retryable} == RETRYABLE


def test_every_error_says_what_it_is_for() -> None:
    assert [cls for cls in CLASSES if "__doc__" not in vars(cls)] == []


def test_the_text_of_an_error_is_its_parts_on_lines_of_their_own_as_far_as_there_are_any() -> None:
    error = StorageError("It broke.", kept="the rows", do="mend it")

    assert str(error) == "It broke.\nKept: the rows\nWhat to do: mend it"
    assert str(StorageError("It broke.")) == "It broke."
    assert str(StorageError("It broke.", do="mend it")) == "It broke.\nWhat to do: mend it"
    assert str(StorageError("It broke.", kept="all")) == "It broke.\nKept: all"


def test_a_wrong_argument_is_a_value_error() -> None:
    assert issubclass(InputError, ValueError)


def test_the_next_try_is_promised_only_where_there_is_one() -> None:
    classes = {cls.__name__ for cls in CLASSES}
    promised = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "next try" in text else ():
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            advice = "".join(
                ast.unparse(word.value) for word in getattr(node, "keywords", ()) if word.arg == "do"
            )
            if name in classes and "next try" in advice:
                promised.append((f"{path.relative_to(PACKAGE)}:{node.lineno}", name))

    assert promised
    assert [error for error in promised if error[1] not in RETRYABLE] == []


def test_every_way_in_which_a_table_leaves_its_log_is_caught_together() -> None:
    kinds = exceptions.TableDivergedError.__subclasses__()

    assert len(kinds) == len({kind.__name__ for kind in kinds}) == 8
    assert not any(kind.is_retryable for kind in kinds)


# ---- secrets do not appear in errors -----------------------------------------------------------------


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
