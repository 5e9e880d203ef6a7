"""The pages, taken apart: fenced blocks, sections, tables, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(DOCS.glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")),
]

_FENCED = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: the first word after the fence, the rest of that line, and the lines inside."""

    language: str
    name: str
    text: str


def page_id(page: Path) -> str:
    return page.name


def blocks(text: str, language: str | None = None) -> list[Block]:
    """Return the fenced blocks of a language, or all."""
    found = map(Block._make, _FENCED.findall(text))
    return [block for block in found if language in (None, block.language)]


def prose(text: str) -> str:
    """Return a text without its fenced blocks."""
    return _FENCED.sub("", text)


def section(page: Path, heading: str) -> str:
    """Return the text from a heading to the next one of its level or above."""
    level = heading.split(" ", 1)[0]
    _, is_there, rest = page.read_text().partition(f"\n{heading}\n")
    assert is_there, f"{page.name} has no heading {heading}"
    return re.split(rf"\n#{{2,{len(level)}}} ", rest, maxsplit=1)[0]


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", prose(page.read_text()), re.MULTILINE)


def anchors(page: Path) -> list[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(page)]


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text()))


def rows(text: str) -> list[list[str]]:
    """Return the cells of all tables in a text, without their headings."""
    found: list[list[str]] = []
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.strip().splitlines()]
        found += [[cell.strip() for cell in line] for line in lines[2:]]
    return found


def code(cell: str) -> list[str]:
    """Return what a cell has between backticks."""
    return re.findall(r"`([^`]+)`", cell)
