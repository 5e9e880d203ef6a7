"""Options of Spark's reader: those that would change which rows there are, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.files.spec import REFUSED
from airflow_provider_scope.specs import FileSource
from tests.support.values import XCOM


def make(options: Any) -> FileSource:
    return validation.from_dict(FileSource, "source", {"roots": ["/in"], "options": options})


@pytest.mark.parametrize("spelled", [str, str.lower, str.upper])
@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_changes_which_rows_there_are_is_refused_in_any_case(name: str, spelled: Any) -> None:
    with pytest.raises(InputError) as caught:
        make({"header": "true", spelled(name): "x"})

    assert caught.value.what.startswith(f"options[{spelled(name)!r}]='x' is refused: ")
    assert caught.value.do == REFUSED[name].instead


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "dropMalformed", None, True])
def test_a_mode_that_goes_on_past_bad_records_is_answered_with_another_way(mode: Any) -> None:
    with pytest.raises(InputError) as caught:
        make({"Mode": mode})

    assert caught.value.what == (
        f"options['Mode']={mode!r} is refused: rows that do not parse would vanish, or become NULLs."
    )
    assert caught.value.do == (
        "leave it out; declare a column that may hold anything as string, and use try_cast in the SELECT"
    )


@pytest.mark.parametrize(
    "options",
    [
        None,
        {},
        XCOM,
        {"mode": "FAILFAST"},
        {"mode": "failfast", "enforceSchema": "false", "columnPruning": False, "ignoreCorruptFiles": "False"},
        {"mode": "{{ params.mode }}"},
        {"header": "{{ params.header }}", "sep": ";", "encoding": "latin1", "multiLine": True},
        {"mergeSchema": "true"},
        {"inferSchema": "true", "samplingRatio": "0.5"},
        {"dateFormat": "dd.MM.yyyy", "datetimeRebaseMode": "LEGACY"},
    ],
)
def test_options_that_say_how_a_file_is_read_are_taken(options: Any) -> None:
    assert make(options).options == options


def test_a_filter_is_refused_even_if_its_value_is_a_template() -> None:
    with pytest.raises(InputError, match="pathGlobFilter"):
        make({"pathGlobFilter": "{{ params.pattern }}"})


def test_two_spellings_of_one_option_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        make({"Header": "true", "header": "false"})

    assert caught.value.what == (
        "options='header' is not valid: expected each option once: Header and header are the same option "
        "to Spark."
    )
