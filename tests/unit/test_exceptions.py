"""Every error keeps its three parts, wherever it goes."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from airflow_provider_scope import exceptions
from airflow_provider_scope.exceptions import InputError, ScopeProviderError, StorageError

CLASSES = [
    value
    for value in vars(exceptions).values()
    if inspect.isclass(value) and issubclass(value, ScopeProviderError)
]
RETRYABLE = {
    "SourceNotFoundError",
    "SourceEmptyError",
    "SourceUnreadableError",
    "StorageError",
    "TableUnreadableError",
    "BatchNotInTableError",
    "EngineError",
    "SparkJobFailedError",
    "DeltaJarsError",
    "JobRunningError",
    "ScopeJobFailedError",
    "ServiceAuthError",
    "ServiceOutcomeUnknownError",
    "ServiceUnavailableError",
    "SourceRefusedError",
}


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_survives_pickling_and_copying_with_its_parts(cls: type[ScopeProviderError]) -> None:
    error = cls("It broke.", kept="the rows", do="mend it")

    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is cls
        assert (again.what, again.kept, again.do) == ("It broke.", "the rows", "mend it")
        assert again.args == ("It broke.",)


@pytest.mark.parametrize("cls", CLASSES)
def test_the_text_of_an_error_is_its_parts_on_lines_of_their_own(cls: type[ScopeProviderError]) -> None:
    assert str(cls("It broke.", kept="the rows", do="mend it")) == (
        "It broke.\nKept: the rows\nWhat to do: mend it"
    )


@pytest.mark.parametrize("cls", CLASSES)
def test_only_errors_that_another_try_can_mend_are_retryable(cls: type[ScopeProviderError]) -> None:
    assert cls("x").is_retryable is (cls.__name__ in RETRYABLE)


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_says_what_it_is_for(cls: type[ScopeProviderError]) -> None:
    assert cls.__doc__
    assert cls.__doc__ != ScopeProviderError.__doc__ or cls is ScopeProviderError


def test_parts_that_are_not_given_are_not_shown() -> None:
    assert str(StorageError("It broke.")) == "It broke."
    assert str(StorageError("It broke.", do="mend it")) == "It broke.\nWhat to do: mend it"
    assert str(StorageError("It broke.", kept="all")) == "It broke.\nKept: all"


def test_a_wrong_argument_is_a_value_error() -> None:
    assert issubclass(InputError, ValueError)
