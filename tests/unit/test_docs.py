"""What the documentation lists is what there is: error codes, public names, pages."""

from __future__ import annotations

import re
from pathlib import Path

import penstock as ps
from penstock import errors

DOCS = Path(__file__).parents[2] / "docs"


def test_every_error_has_its_line_in_the_catalogue() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "errors.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        kind.code for kind in errors.PenstockError.__subclasses__() if kind.__module__ == errors.__name__
    )


def test_every_public_name_is_in_the_reference() -> None:
    page = (DOCS / "reference.md").read_text()
    assert [name for name in ps.__all__ if not re.search(rf"penstock\.{name}\b", page)] == []


def test_what_users_test_with_and_write_connectors_with_is_in_the_reference_with_a_text_of_its_own() -> None:
    page = (DOCS / "reference.md").read_text()
    marks = {"BURST", "CRASH", "PAUSE", "RESTART", "SWITCH"}
    values = {"INTERFACE", "Position", "Record"}
    for module, left_out in ((ps.testing, marks), (ps.connectors, values | set(ps.__all__) | {"At"})):
        for name in set(module.__all__) - left_out:
            assert f"::: {module.__name__}.{name}\n" in page, name
            assert (getattr(module, name).__doc__ or "").strip(), name


def test_every_page_is_in_the_menu() -> None:
    menu = (DOCS.parent / "mkdocs.yml").read_text()
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert sorted(pages - set(re.findall(r"[\w/-]+\.md", menu))) == []
