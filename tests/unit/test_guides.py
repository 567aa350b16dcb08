"""The guides: every Python block runs, and prints what the page says; none of them needs Spark."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = [
    "bursts.md",
    "deduplicate.md",
    "deploying.md",
    "exactly-once.md",
    "monitoring.md",
    "resuming.md",
    "testing.md",
    "tuning.md",
    "writing-connectors.md",
]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", GUIDES)
def test_the_code_of_a_guide_runs_and_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    names: dict[str, object] = {"__name__": "guide"}
    printed, blocks = "", 0
    for kind, body in BLOCK.findall((DOCS / page).read_text()):
        if kind == "text":
            assert printed == body, page
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(body, page, "exec"), names)
        printed, blocks = out.getvalue(), blocks + 1
    assert blocks
    for name, value in list(names.items()):
        if name.startswith("test_"):
            from penstock.testing import Harness

            value(Harness)  # type: ignore[operator]


def test_python_in_a_guide_is_marked_as_such() -> None:
    """A block without a mark is not run: nothing in one may look like Python."""
    for page in GUIDES:
        for kind, body in re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL):
            assert kind or not re.search(r"^(import|from|def|class) ", body, re.MULTILINE), page
