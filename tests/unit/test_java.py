"""Java: found, missing, too old, broken."""

import pytest

from neve.errors import Code, SetupError
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
