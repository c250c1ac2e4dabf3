"""Jars: fetched through Spark's own Ivy from a repository on disk, checked, kept."""

import hashlib
import os
import signal
import subprocess
import sys

import pytest

from neve.errors import SetupError
from neve.lake.jars import JARS, Jar, ensure_jars
from neve.lake.java import find_java

CONTENT = b"not really a jar"
SETTINGS = """<ivysettings><settings defaultResolver="disk"/><resolvers><filesystem name="disk">
<artifact pattern="{root}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("NEVE_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "repository"
    root.mkdir()
    (root / "thing-1.0.jar").write_bytes(CONTENT)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(root=root))
    return settings


def jar(content=CONTENT, artifact="thing"):
    return Jar("org.example", artifact, "1.0", hashlib.sha256(content).hexdigest())


def test_a_jar_is_fetched_once_and_then_found_without_any_repository(repository):
    said = []
    (path,) = ensure_jars(find_java(), said.append, str(repository), [jar()])
    assert path.read_bytes() == CONTENT
    assert said == ["fetching thing 1.0 (once)"]
    repository.unlink()
    assert ensure_jars(find_java(), said.append, str(repository), [jar()]) == [path]
    assert len(said) == 1
    assert [file.name for file in path.parent.iterdir()] == ["thing-1.0.jar"]


def test_a_jar_that_cannot_be_had_is_named_with_ways_to_provide_it(repository):
    with pytest.raises(
        SetupError, match=r"org\.example:absent:1\.0 could not be fetched"
    ) as caught:
        ensure_jars(find_java(), lambda _: None, str(repository), [jar(artifact="absent")])
    assert "put absent-1.0.jar into" in str(caught.value.hint)
    assert "ivySettings" in str(caught.value.hint)


def test_another_file_under_the_name_is_refused_and_not_kept(repository, tmp_path):
    with pytest.raises(SetupError, match="is not the pinned one"):
        ensure_jars(find_java(), lambda _: None, str(repository), [jar(b"pinned")])
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEVE_CACHE", str(tmp_path / "file"))
    with pytest.raises(SetupError, match="cannot be written"):
        ensure_jars(find_java(), lambda _: None, None, [jar()])


def test_power_cut_before_a_jar_is_kept_leaves_none_and_is_repaired(repository, tmp_path):
    program = (
        "import sys; from neve.lake.jars import Jar, ensure_jars\n"
        "from neve.lake.java import find_java\n"
        "ensure_jars(find_java(), print, sys.argv[1], [Jar('org.example', 'thing', '1.0', "
        "sys.argv[2])])"
    )
    cut = subprocess.run(
        [sys.executable, "-c", program, str(repository), jar().sha256],
        env={**os.environ, "NEVE_FAILPOINT": "lake.jar_fetched"},
        capture_output=True,
        check=False,
    )
    assert cut.returncode == -signal.SIGKILL
    assert not (tmp_path / "cache" / "jars" / "thing-1.0.jar").exists()
    (path,) = ensure_jars(find_java(), lambda _: None, str(repository), [jar()])
    assert path.read_bytes() == CONTENT


def test_every_pinned_jar_has_a_whole_hash():
    assert len({pinned.coordinate for pinned in JARS}) == len(JARS)
    assert all(len(pinned.sha256) == 64 for pinned in JARS)
