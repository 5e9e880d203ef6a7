"""Settings that a user may not change, because the rows would not be those of the files."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.spark.settings import EXACT, EXACT_AT_START
from airflow_provider_scope.specs import SparkEngine


@pytest.mark.parametrize("name", [*EXACT, *EXACT_AT_START])
def test_a_setting_that_contradicts_an_exact_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=f"^conf\\['{name}'\\]='other' is refused, it has to be "):
        validation.from_dict(SparkEngine, "engine", {"conf": {"spark.driver.memory": "4g", name: "other"}})


def test_the_error_says_what_could_happen() -> None:
    with pytest.raises(InputError) as caught:
        SparkEngine(conf={"spark.sql.ansi.enabled": "false"})

    assert caught.value.what == (
        "conf['spark.sql.ansi.enabled']='false' is refused, it has to be true: a cast that fails would "
        "give NULL."
    )
    assert caught.value.do == "leave it out"


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.sql.ansi.enabled": "true"},
        {"spark.sql.ansi.enabled": True},
        {"spark.sql.session.timeZone": "utc"},
        {"spark.sql.session.timeZone": "{{ params.zone }}"},
        {"spark.sql.shuffle.partitions": "200"},
    ],
)
def test_other_settings_and_the_same_values_are_taken(conf: dict[str, Any]) -> None:
    assert SparkEngine(conf=conf).conf == conf
