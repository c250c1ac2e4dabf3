"""Java: found, missing, too old, broken."""

import json
from importlib.metadata import version

import pytest

from neve.cli.app import run
from neve.errors import Code, SetupError
from neve.lake.jars import ICEBERG_VERSION
from neve.lake.java import find_java


def fake_java(directory, output, status=0):
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {status}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_new_enough_java_is_taken(monkeypatch, tmp_path, version):
    java = fake_java(tmp_path / "jdk", f'openjdk version "{version}" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert find_java() == java


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", "8"), ("11.0.2", "11")])
def test_old_java_is_refused_with_the_package_to_install(monkeypatch, tmp_path, version, major):
    fake_java(tmp_path / "jdk", f'openjdk version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(SetupError, match=f"Java {major} .* too old") as caught:
        find_java()
    assert "openjdk-17" in str(caught.value.hint)
    assert caught.value.code is Code.SETUP


def test_missing_java_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="Java is missing"):
        find_java()


def test_broken_java_is_said(monkeypatch, tmp_path):
    fake_java(tmp_path / "jdk", "boom", status=3)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(SetupError, match="does not run"):
        find_java()


def test_the_demo_asks_for_java_and_for_space_before_it_makes_anything(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    assert run(["demo", "--dir", str(tmp_path / "demo")]) == 1
    assert "Java is missing" in capsys.readouterr().err
    fake_java(tmp_path / "jdk", 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr("neve.cli.demo.needs._NEEDED_BYTES", 1 << 62)
    assert run(["demo", "--dir", str(tmp_path / "demo")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the disk of {tmp_path} has" in line
    assert not (tmp_path / "demo").exists()


def test_the_version_says_what_is_inside(monkeypatch, tmp_path, capsys):
    fake_java(tmp_path / "jdk", 'openjdk version "21.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert run(["--version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == ["neve", "Python", "Spark", "Iceberg", "PyIceberg", "DuckDB", "Java"]
    assert lines[-1] == f"Java 21.0.2 ({tmp_path}/jdk/bin/java)"
    assert run(["--version", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert (parts["neve"], parts["spark"]) == (version("neve"), version("pyspark"))
    assert (parts["iceberg"], parts["java"]) == (ICEBERG_VERSION, "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Java is missing")
