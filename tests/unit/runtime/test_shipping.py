"""What is sent to the executors of a cluster: what lies beside the program, and what the user names."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.errors import InvalidOption, LimitExceeded
from penstock.pipeline.options import Options
from penstock.runtime import shipping
from penstock.runtime.packing import check_sent


def test_modules_and_packages_are_packed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import helper")
    (tmp_path / "helper.py").write_text("VALUE = 1")
    (tmp_path / "data.csv").write_text("a,b")
    for directory in ("package/inner", "package/__pycache__", "notes"):
        (tmp_path / directory).mkdir(parents=True)
    held = {"package/__init__.py", "package/inner/deep.py", "package/inner/data.json"}
    for path in (*held, "package/__pycache__/x.py", "notes/loose.py"):
        (tmp_path / path).write_text("")
    packed = tmp_path / "packed.zip"
    assert shipping.pack(tmp_path, packed, "modules") == 5
    assert set(zipfile.ZipFile(packed).namelist()) == {"job.py", "helper.py", *held}


def test_a_directory_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text("x = 1" * 100)
    monkeypatch.setattr(shipping, "PACKED_BYTES_MAX", 100)
    with pytest.raises(LimitExceeded, match="modules beside the program"):
        shipping.pack(tmp_path, tmp_path / "packed.zip", "modules beside the program")


def test_the_program_is_found_by_its_path_and_an_installed_command_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.py").write_text("")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "job.py")])
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert shipping.program_directory() == tmp_path.resolve()
    # `penstock run job.py` puts the file's directory first, and is itself installed beside Python.
    monkeypatch.setattr("sys.argv", [str(Path(sys.executable).parent / "penstock")])
    assert shipping.program_directory() == tmp_path.resolve()
    monkeypatch.setattr("sys.path", [str(Path(sys.executable).parent)])
    assert shipping.program_directory() is None
    monkeypatch.setattr("sys.argv", [""])
    assert shipping.program_directory() is None


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A module, a package, an archive with another one, and what is neither."""
    (tmp_path / "shipped_module.py").write_text("VALUE = 1")
    (tmp_path / "shipped_package").mkdir()
    (tmp_path / "shipped_package" / "__init__.py").write_text("VALUE = 2")
    with zipfile.ZipFile(tmp_path / "archive.whl", "w") as packed:
        packed.writestr("shipped_inside/__init__.py", "VALUE = 3")
    with zipfile.ZipFile(tmp_path / "twin.zip", "w") as packed:
        packed.writestr("shipped_module.py", "VALUE = 4")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.zip").write_text("no archive")
    (tmp_path / "notes.txt").write_text("text")
    return {each.name: str(each) for each in tmp_path.iterdir()}


def test_what_py_files_hold_is_imported_from_one_directory(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tuple(files[name] for name in ("shipped_module.py", "shipped_package", "archive.whl"))
    options = Options.of(py_files=",".join(given), files=[files["notes.txt"]])
    assert (options.py_files, options.files) == (given, (files["notes.txt"],))
    check_sent(options)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "before")
    shipping.make_importable(options.py_files)
    names = ("shipped_module", "shipped_package", "shipped_inside")
    assert [importlib.import_module(name).VALUE for name in names] == [1, 2, 3]
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    assert shipping.gathered(given) == Path(sys.path[0])
    assert os.environ["PYTHONPATH"] == f"{sys.path[0]}{os.pathsep}before"


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("py_files", ["missing.py"], "files that are there"),
        ("py_files", ["s3://bucket/x.zip"], "files of this machine"),
        ("py_files", ["notes.txt"], "archives of them"),
        ("py_files", ["empty"], "with __init__.py"),
        ("py_files", ["broken.zip"], "can be opened"),
        ("files", ["empty"], "pack a directory"),
        ("files", ["notes.txt", "../notes.txt"], "one file of the name"),
        ("environment", "env.tar.gz", "on a cluster only"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    option: str, given: str | list[str], said: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    below = Path(files["empty"]).parent
    monkeypatch.chdir(below)
    (below.parent / "notes.txt").write_text("text")
    with pytest.raises(InvalidOption, match=said):
        check_sent(Options.of(**{option: given}))


def test_two_modules_of_one_name_are_refused(files: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match=r"'shipped_module\.py' is in two of them"):
        shipping.gathered((files["shipped_module.py"], files["twin.zip"]))
    with pytest.raises(InvalidOption, match="as a list or with commas"):
        Options.of(py_files=3)  # type: ignore[arg-type]
