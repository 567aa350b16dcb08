"""What the documentation lists is what there is: error codes, public names, pages."""

from __future__ import annotations

import re
from pathlib import Path

import penstock as ps
from penstock import errors

DOCS = Path(__file__).parents[2] / "docs"


def test_every_error_has_its_line_in_the_catalogue() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "errors.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(kind.code for kind in errors.PenstockError.__subclasses__())


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "reference.md").read_text()
    assert [name for name in ps.__all__ if not re.search(rf"penstock\.{name}\b", page)] == []


def test_every_page_is_in_the_menu() -> None:
    menu = (DOCS.parent / "mkdocs.yml").read_text()
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert sorted(pages - set(re.findall(r"[\w/-]+\.md", menu))) == []
