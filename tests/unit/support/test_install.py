"""The installer of the test servers, with parts that take no time."""

from __future__ import annotations

import os

import pytest

from neve.config.cache import CACHE_VARIABLE
from neve.errors import SetupError
from tests.support.install import PARTS, Part, Tool, install

MISSING = Tool("no-such-command", None, "install it: apt-get install nothing")


def ignore(_):
    pass


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_part_is_installed_once():
    said, built = [], []

    def build(directory):
        built.append(directory)
        (directory / "server").touch()

    part = Part("server", "v1", (), build)
    for _ in range(2):
        install(said.append, [part], [])
    assert said == ["installing server v1 (once)"]
    assert len(built) == 1
    assert (part.directory / "server").exists()


def test_a_part_that_fails_leaves_nothing(cache):
    def build(directory):
        (directory / "half").touch()
        raise SetupError("no network")

    with pytest.raises(SetupError, match="no network"):
        install(ignore, [Part("server", "v1", (), build)], [])
    assert list((cache / "servers").iterdir()) == []


def test_a_part_that_another_run_installed_meanwhile_is_kept():
    def build(directory):
        part.directory.mkdir()
        (part.directory / "theirs").touch()
        (directory / "ours").touch()

    part = Part("server", "v1", (), build)
    install(ignore, [part], [])
    assert [path.name for path in part.directory.iterdir()] == ["theirs"]


def test_a_missing_tool_is_named_only_when_something_needs_it():
    part = Part("server", "v1", (MISSING,), ignore)
    with pytest.raises(SetupError, match="no-such-command") as missing:
        install(ignore, [part], [])
    assert missing.value.hint == MISSING.hint
    part.directory.mkdir(parents=True)
    install(ignore, [part], [])


def test_packages_are_named_to_those_who_may_not_install_them(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tool = Tool("no-such-command", "some-package", "install it: apt-get install some-package")
    with pytest.raises(SetupError) as missing:
        install(ignore, [], [tool])
    assert missing.value.hint == "install it: apt-get install some-package"


def test_every_part_has_a_directory_of_its_own():
    assert len({part.directory for part in PARTS}) == len(PARTS)
