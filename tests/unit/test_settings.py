"""Settings of Spark and options of its readers: what would change rows is refused; what is small."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_scope import validation
from airflow_provider_scope.exceptions import InputError
from airflow_provider_scope.sources.files.spec import REFUSED
from airflow_provider_scope.spark import settings
from airflow_provider_scope.spark.settings import EXACT, EXACT_AT_START
from airflow_provider_scope.specs import FileSource, SparkEngine
from tests.support.values import XCOM


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


# ---- what one task does ------------------------------------------------------------------------------


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("rows", "table_bytes", "expected"),
    [
        (0, 0, True),
        (10_000, 16 * MIB, True),
        (10_001, 0, False),
        (1, 16 * MIB + 1, False),
        (1, None, False),
    ],
)
def test_a_merge_is_small_if_both_sides_are_known_to_be(rows, table_bytes, expected):
    assert settings.is_small_merge(rows, table_bytes) is expected


@pytest.mark.parametrize(
    ("files", "cores", "expected"),
    [
        (0, 2, 4 * MIB),
        (32, 2, 4 * MIB),  # as Spark has it: half a task for each core
        (64, 2, 2 * MIB),
        (1_000, 2, 134_217),
        (1_000, 64, 4 * MIB),
        (10**9, 1, 0),
    ],
)
def test_opening_all_files_counts_at_most_half_a_task_for_each_core(files, cores, expected):
    cost = settings.open_cost(files, cores)

    assert cost == expected
    assert cost * files <= 64 * MIB * cores


# ---- options of Spark's reader -----------------------------------------------------------------------


def make(options: Any) -> FileSource:
    return validation.from_dict(FileSource, "source", {"roots": ["/in"], "options": options})


@pytest.mark.parametrize("spelled", [str, str.lower, str.upper])
@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_changes_which_rows_there_are_is_refused_in_any_case(name: str, spelled: Any) -> None:
    with pytest.raises(InputError) as caught:
        make({"header": "true", spelled(name): "x"})

    assert caught.value.what.startswith(f"options[{spelled(name)!r}]='x' is refused: ")
    assert caught.value.do == REFUSED[name].instead


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "dropMalformed", None, "true"])
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
        {
            "mode": "failfast",
            "enforceSchema": "false",
            "columnPruning": "false",
            "ignoreCorruptFiles": "False",
        },
        {"mode": "{{ params.mode }}"},
        {"header": "{{ params.header }}", "sep": ";", "encoding": "latin1", "multiLine": "true"},
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
