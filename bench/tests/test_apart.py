"""A measurement in a process of its own: what it found, or why it found nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock_bench.meter.apart import apart


def test_the_last_line_is_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "said.py").write_text("import sys\nprint('on the way')\nprint('{\"found\": %s}' % sys.argv[1])\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert apart("said", "7", kind=dict) == {"found": 7}


def test_what_it_failed_with_is_told() -> None:
    with pytest.raises(PenstockError, match=r"'penstock_bench\.nowhere 7' failed: .*No module named"):
        apart("penstock_bench.nowhere", "7", kind=dict)
