"""Links lead somewhere, and files that are named exist."""

from __future__ import annotations

import re

import pytest

import airflow_provider_scope
from tests.docs.pages import DOCS, PAGES, ROOT, anchors, code, links, page_id, prose

PACKAGE = ROOT / airflow_provider_scope.__name__


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
