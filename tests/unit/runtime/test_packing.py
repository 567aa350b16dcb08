"""Environments that travel: what is packed, and which ones a job takes."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import InvalidOption, SessionRefused, SparkFailed
from penstock.pipeline.options import Options
from penstock.runtime import packing
from penstock.runtime.packing import PYTHON, check_sent, check_unpacked, pack_environment, python_of

CLUSTER = "spark://host:7077"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment of a few files, in place of this one; its interpreter is not packed."""
    monkeypatch.setattr(packing, "_python", lambda site: iter([("bin/python", b"#!/bin/sh")]))
    site = tmp_path / "lib" / "site-packages"
    edited = tmp_path / "edited"
    for path, text in {
        "one/__init__.py": "",
        "one/__pycache__/x.pyc": "",
        "pyspark/jars/spark.jar": "",
        "pyspark/__init__.py": "",
        "one-1.0.dist-info/METADATA": "Name: one\nVersion: 1.0\nRequires-Dist: two[more]\nRequires-Dist: none; x < 1",
        "one-1.0.dist-info/RECORD": "one/__init__.py,,\none-1.0.dist-info/METADATA,,\n../../bin/one,,",
        "two-1.0.dist-info/METADATA": 'Name: two\nVersion: 1.0\nRequires-Dist: three; extra == "more"\n'
        'Requires-Dist: four; extra == "other"',
        "two-1.0.dist-info/RECORD": "two.py,,\nedited.pth,,",
        "three-1.0.dist-info/METADATA": "Name: three\nVersion: 1.0",
        "three-1.0.dist-info/RECORD": "three.py,,",
        "two.py": "",
        "three.py": "",
        "four.py": "",
        "edited.pth": f"{edited}\n{edited}\nimport os",
    }.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (edited / "mine").mkdir(parents=True)
    (edited / "mine" / "__init__.py").touch()
    monkeypatch.setattr(packing.sysconfig, "get_paths", lambda: {"purelib": str(site)})
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    return site


def held(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert len(names) == len(set(names))
    assert names[0] == packing.MANIFEST
    return {name.removeprefix("lib/site-packages/") for name in names[1:]}


def test_everything_that_is_installed_is_packed_but_what_no_worker_reads(small: Path, tmp_path: Path) -> None:
    assert pack_environment(tmp_path / "e.tar.gz") == (tmp_path / "e.tar.gz").stat().st_size
    told = held(tmp_path / "e.tar.gz")
    assert {"bin/python", "one/__init__.py", "pyspark/__init__.py", "four.py", "mine/__init__.py"} <= told
    assert not [name for name in told if "jars" in name or name.endswith((".pyc", ".pth"))]


def test_chosen_packages_bring_those_that_they_need(small: Path, tmp_path: Path) -> None:
    pack_environment(tmp_path / "e.tgz", only=["one"])
    files = {"one/__init__.py", "two.py", "three.py", "mine/__init__.py", "one-1.0.dist-info/METADATA"}
    assert held(tmp_path / "e.tgz") == {"bin/python", *files}
    with pytest.raises(InvalidOption, match="packages that are installed"):
        pack_environment(tmp_path / "f.tgz", only=["absent"])
    (small / "edited.pth").write_text("import __editable___finder; __editable___finder.install()")
    with pytest.raises(InvalidOption, match="install it plainly"):
        pack_environment(tmp_path / "f.tgz")
    assert not [each for each in tmp_path.iterdir() if "f.tgz" in each.name]


def test_requirements_are_installed_and_packed_if_they_have_the_drivers_versions(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "small-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("small.py", "")
        wheel.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        wheel.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("small-1.0.dist-info/RECORD", "")
    needed = tmp_path / "requirements.txt"
    needed.write_text(str(tmp_path / "small-1.0-py3-none-any.whl"))
    with pytest.raises(InvalidOption, match=r"which is the driver's \(it has none\)"):
        pack_environment(tmp_path / "e.tar.gz", requirements=needed)
    monkeypatch.setattr(packing, "_facts", lambda: {"python": "3"})
    with monkeypatch.context() as patched:
        patched.setattr(packing, "_install", lambda requirements, into: (into / "small.py").touch())
        pack_environment(tmp_path / "e.tar.gz", requirements=needed)
    assert held(tmp_path / "e.tar.gz") == {"bin/python", "small.py"}
    needed.write_text("./absent.whl")
    with pytest.raises(SparkFailed, match="could not be installed"):
        pack_environment(tmp_path / "f.tar.gz", requirements=needed)


def test_the_interpreter_finds_itself_by_where_it_lies() -> None:
    names = dict(packing._python(packing._site()))
    library = Path(os.__file__).parent.name
    assert f"lib/{library}/os.py" in names
    assert any(name.startswith(f"lib/{library}/lib-dynload/") for name in names)
    assert not [name for name in names if "site-packages" in name or name.startswith("/") or ".." in name]
    launcher = names["bin/python"]
    assert isinstance(launcher, bytes)
    assert b'exec "$here/bin/' in launcher


def made(path: Path, **facts: str) -> str:
    """An archive whose manifest says something else."""
    (path / packing.MANIFEST).write_text(json.dumps({**packing._facts(), **facts}))
    with tarfile.open(path / "e.tar.gz", "w:gz") as packed:
        packed.add(path / packing.MANIFEST, packing.MANIFEST)
    return str(path / "e.tar.gz")


def test_an_environment_of_another_version_is_refused(tmp_path: Path) -> None:
    check_sent(Options.of(master=CLUSTER, environment=made(tmp_path)))
    for what in ("python", "penstock", "pyspark"):
        with pytest.raises(InvalidOption, match=f"with {what} .*it has 0; pack it again"):
            check_sent(Options.of(master=CLUSTER, environment=made(tmp_path, **{what: "0"})))
    (tmp_path / "broken.tgz").write_text("no archive")
    for given, said in (("broken.tgz", "can be read"), ("absent.tgz", "is there"), (packing.MANIFEST, "is there")):
        with pytest.raises(InvalidOption, match=said):
            check_sent(Options.of(master=CLUSTER, environment=tmp_path / given))


def test_a_session_that_was_started_without_the_environment_is_refused(tmp_path: Path) -> None:
    options = Options.of(master=CLUSTER, environment=made(tmp_path))
    settings = packing.environment_settings(options)

    def session(conf: dict[str, str]) -> Any:
        return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))

    check_unpacked(session(settings), options)
    check_unpacked(session({}), Options.of())
    with pytest.raises(SessionRefused, match="run another Python"):
        check_unpacked(session({}), options)


def test_spark_starts_with_the_environments_python_and_nothing_of_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "mine")
    with python_of({"spark.archives": "e.tar.gz#environment"}):
        assert os.environ["PYSPARK_PYTHON"] == PYTHON
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    with python_of({}):
        assert os.environ["PYSPARK_PYTHON"] == "mine"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_the_command_says_what_it_has_written_and_overwrites_nothing(small: Path, tmp_path: Path) -> None:
    archive = str(tmp_path / "e.tar.gz")
    runner = CliRunner()
    done = runner.invoke(app, ["pack", "-o", archive])
    assert (done.exit_code, f"--environment {archive}" in done.output) == (0, True)
    for arguments, said in (
        (["-o", archive], "--overwrite"),
        (["-o", str(tmp_path / "e.zip")], "ends with .tar.gz"),
        (["-o", str(tmp_path / "absent" / "e.tgz")], "in a directory that is there"),
        (["-o", str(tmp_path / "f.tgz"), "-r", "absent.txt"], "a file that is there"),
    ):
        refused = runner.invoke(app, ["pack", *arguments])
        assert (refused.exit_code, said in refused.output) == (2, True), refused.output
