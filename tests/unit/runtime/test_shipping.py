"""What is sent to the executors of a cluster: the modules and packages beside the program, and nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from penstock.errors import LimitExceeded
from penstock.runtime import shipping


def test_modules_and_packages_are_packed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import helper")
    (tmp_path / "helper.py").write_text("VALUE = 1")
    (tmp_path / "data.csv").write_text("a,b")
    for directory in ("package/inner", "package/__pycache__", "notes"):
        (tmp_path / directory).mkdir(parents=True)
    for path in ("package/__init__.py", "package/inner/deep.py", "package/__pycache__/x.py", "notes/loose.py"):
        (tmp_path / path).write_text("")
    packed = tmp_path / "packed.zip"
    assert shipping.pack_modules(tmp_path, packed) == 4
    names = set(zipfile.ZipFile(packed).namelist())
    assert names == {"job.py", "helper.py", "package/__init__.py", "package/inner/deep.py"}


def test_a_directory_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text("x = 1" * 100)
    monkeypatch.setattr(shipping, "PACKED_BYTES_MAX", 100)
    with pytest.raises(LimitExceeded, match="modules beside the program"):
        shipping.pack_modules(tmp_path, tmp_path / "packed.zip")


def test_the_program_is_found_by_its_path_and_an_installed_command_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.py").write_text("")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "job.py")])
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert shipping.program_directory() == tmp_path.resolve()
    # `penstock run job.py` puts the file's directory first, and is itself installed beside Python.
    import sys

    monkeypatch.setattr("sys.argv", [str(Path(sys.executable).parent / "penstock")])
    assert shipping.program_directory() == tmp_path.resolve()
    monkeypatch.setattr("sys.path", [str(Path(sys.executable).parent)])
    assert shipping.program_directory() is None
    monkeypatch.setattr("sys.argv", [""])
    assert shipping.program_directory() is None
