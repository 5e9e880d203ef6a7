"""Each error has one heading, and what stands below it fits the class."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from airflow_provider_scope import exceptions, specs
from tests.docs.pages import DOCS, blocks, headings, section

PAGE = DOCS / "errors.md"
CLASSES = [
    n.name for n in ast.parse(Path(exceptions.__file__).read_text()).body if isinstance(n, ast.ClassDef)
]
BASES = [
    name
    for name in CLASSES
    if name != "InputError" and any(c.__name__ in CLASSES for c in getattr(exceptions, name).__subclasses__())
]


def test_every_error_has_one_heading_in_the_order_of_the_code():
    assert headings(PAGE)[1:] == CLASSES


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in BASES])
def test_an_error_has_its_cause_what_is_kept_what_to_do_and_whether_a_retry_helps(name):
    text = " ".join(section(PAGE, f"## {name}").split())
    parts = [part for part in ("Cause", "Kept", "Do") if text.count(f"*{part}.*") == 1]
    retry = "yes" if getattr(exceptions, name).is_retryable else "no"

    assert parts == ["Cause", "Kept", "Do"]
    assert text.count("*Retry: ") == 1
    assert f"*Retry: {retry}.*" in text


@pytest.mark.parametrize("name", BASES)
def test_a_base_class_is_said_to_be_one(name):
    assert section(PAGE, f"## {name}").strip().startswith("Base of ")


def test_the_error_that_is_shown_is_the_one_that_is_raised():
    with pytest.raises(exceptions.InputError) as caught:
        specs.FileSource(roots="/data/landing", format="parquet", late_files="drop")

    assert blocks(PAGE.read_text(), "text")[0].text == f"InputError: {caught.value}\n"
