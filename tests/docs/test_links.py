"""Links lead somewhere, and files that are named exist."""

from __future__ import annotations

import re
from functools import cache

import pytest

import airflow_provider_scope
from tests.docs.pages import DOCS, PAGES, ROOT, anchors, code, links, page_id, prose

PACKAGE = ROOT / airflow_provider_scope.__name__
OTHERS_PAGES = ("moving_from_", "dbt_scope_names")
OTHERS_NAMES = {
    "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION": "an error of Delta",
    "INVALID_ATTRIBUTE_NAME_SYNTAX": "an error of Spark",
    "explode_outer": "a function of Spark",
    "is_variant_null": "a function of Spark",
    "updated_at": "a column of an example",
    "_ms": "the end of a name",
    "_bytes": "the end of a name",
    "_seconds": "the end of a name",
    "_dlt_pipeline_state": "a table of dlt",
    "write_disposition": "an argument of dlt",
    "schema_contract": "an argument of dlt",
    "discard_row": "a word of dlt",
    "discard_value": "a word of dlt",
    "amount__v_text": "a column that dlt makes",
    "user__id": "a column that dlt makes",
    "apply_hints": "a function of dlt",
    "allow_external_schedulers": "an argument of dlt",
    "row_order": "an argument of dlt",
    "drop_data": "a word of dlt",
    "exponential_backoff": "an argument of Airflow's sensors",
    "max_wait": "an argument of Airflow's sensors",
    "silent_fail": "an argument of Airflow's sensors",
}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_of_a_page_leads_somewhere(page):
    dead = []
    for target in links(page):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            dead.append(target)

    assert dead == []


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=page_id)
def test_no_two_headings_of_a_page_have_the_same_anchor(page):
    found = anchors(page)

    assert len(found) == len(set(found))


def test_the_index_and_the_readme_link_every_page():
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}

    assert {link for link in links(DOCS / "index.md") if "/" not in link} >= pages
    assert {link.removeprefix("docs/") for link in links(ROOT / "README.md")} >= pages


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_the_python_files_and_test_folders_that_a_page_names_exist(page):
    unlinked = re.sub(r"\[`.*?`\]", "", prose(page.read_text()))
    named = [n for n in code(unlinked) if re.fullmatch(r"[a-z_/]+\.py|tests/[a-z_]+", n)]

    assert [name for name in named if not (ROOT / name).exists() and not (PACKAGE / name).exists()] == []


@cache
def names_of_the_repository() -> set[str]:
    files = [path for top in (PACKAGE, ROOT / "tests", ROOT / "demo") for path in top.rglob("*.py")]
    return {word for path in files for word in [path.stem, *re.findall(r"\w+", path.read_text())]}


@pytest.mark.parametrize("page", [p for p in PAGES if not p.name.startswith(OTHERS_PAGES)], ids=page_id)
def test_a_name_that_a_page_uses_is_one_of_the_repository_or_of_somebody_else(page):
    used = {name for text in code(prose(page.read_text())) for name in re.findall(r"\b[A-Za-z]*_\w+", text)}

    assert used - names_of_the_repository() - set(OTHERS_NAMES) == set()
