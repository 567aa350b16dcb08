"""The documentation: the tutorial's code runs and prints what it says, and the site is built without a warning."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
def test_the_tutorial_prints_what_it_says() -> None:
    names: dict[str, object] = {"__name__": "tutorial"}
    printed, checked = "", 0
    for kind, body in BLOCK.findall((DOCS / "tutorial.md").read_text()):
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(body, "tutorial.md", "exec"), names)
            printed = out.getvalue()
        else:
            assert printed == body
            checked += 1
    assert checked >= 6


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    shutil.copytree(DOCS, tmp_path / "docs")
    config = tmp_path / "mkdocs.yml"
    config.write_text(
        text.replace("paths: [src]", f"paths: [{ROOT / 'src'}]").replace("[scripts/", f"[{ROOT / 'scripts'}/")
    )
    zensical = Path(sys.executable).parent / "zensical"
    built = subprocess.run(
        [zensical, "build", "--strict", "-f", config],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "warning" not in (built.stdout + built.stderr).lower(), built.stdout + built.stderr
    reference = (tmp_path / "site" / "reference" / "index.html").read_text()
    assert ":meth:" not in reference, "references in docstrings are shown as names"
    assert "check_sink" in reference
    assert all((DOCS / page).exists() for page in re.findall(r"\s([\w/-]+\.md)$", text, re.MULTILINE))
