"""What the shell is offered on TAB: names from the lake, quickly or not at all."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import neve
from tests.support.command import NEVE
from tests.support.held_batches import HeldBatches
from tests.support.lakes import sqlite_settings
from tests.support.silent import running_silent_server
from tests.support.wait import until

SECRET = "t0p-s3cret-token"
MIRROR = {"namespace": "shop", "primary_keys": "id", "sequence_column": "lsn"}


class Shell:
    """A shell in a directory with a configuration, and a cache of its own."""

    def __init__(self, directory, catalog):
        self.directory = directory
        self.cache = directory / "cache"
        mirror = {**MIRROR, "changelog_table": "changes", "mirror_table": "orders"}
        document = {
            "catalog": catalog,
            "merge": {"tables": [mirror]},
            "receive": {"tokens": [SECRET]},
        }
        (directory / "neve.yaml").write_text(json.dumps(document))

    def run(self, arguments, **variables):
        clean = {name: text for name, text in os.environ.items() if not name.startswith("NEVE_")}
        path = f"{Path(sys.executable).parent}:{clean['PATH']}"
        done = subprocess.run(
            arguments,
            cwd=self.directory,
            env={**clean, "PATH": path, "NEVE_CACHE": str(self.cache), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stderr == ""
        return done.stdout.split()

    def bash(self, *words):
        """Return what is offered for the last word, as bash asks for it."""
        variables = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        return self.run([NEVE], _NEVE_COMPLETE="complete_bash", **variables)

    def caches(self):
        return list((self.cache / "completion").glob("*.json"))


@pytest.fixture
def shell(tmp_path, monkeypatch):
    settings = sqlite_settings(tmp_path)
    with neve.open(settings) as lake:
        batches = HeldBatches(lake, monkeypatch)
        batches.hold("otel.logs", "first", 1)
        batches.hold("otel.logs", "second", 2)
    catalog = {"type": "sqlite", "uri": settings.catalog.uri, "warehouse": f"{tmp_path}/warehouse"}
    return Shell(tmp_path, catalog)


def test_names_of_the_lake_are_offered_in_every_shell(shell, tmp_path):
    # The first TAB fills the cache; on a busy machine the names come with the next one.
    until(lambda: shell.bash("neve", "describe", "") == ["otel.logs", "otel.traces"])
    assert shell.bash("neve", "describe", "otel.t") == ["otel.traces"]
    assert shell.bash("neve", "tables", "") == ["otel"]
    assert shell.bash("neve", "merge", "") == ["shop.orders"]
    assert shell.bash("neve", "index", "verify", "sh") == ["shop.orders"]
    assert shell.bash("neve", "staged", "publish", "") == ["otel.logs"]
    assert shell.bash("neve", "staged", "discard", "otel.logs", "") == ["first", "second"]
    words = {"_TYPER_COMPLETE_ARGS": "neve describe otel.l"}
    zsh = shell.run([NEVE], _NEVE_COMPLETE="complete_zsh", **words)
    assert '(("otel.logs"))' in " ".join(zsh)
    fish = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", **words}
    assert shell.run([NEVE], _NEVE_COMPLETE="complete_fish", **fish) == ["otel.logs"]
    script = (
        'eval "$(neve --show-completion bash)"; COMP_WORDS=(neve describe otel.t); COMP_CWORD=2; '
        '_neve_completion neve; echo "${COMPREPLY[@]}"'
    )
    undetected = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert shell.run(["bash", "--norc", "-c", script], **undetected) == ["otel.traces"]


def test_the_cache_is_private_short_lived_and_holds_no_secret(shell, tmp_path):
    until(lambda: shell.bash("neve", "describe", "") == ["otel.logs", "otel.traces"])
    (cache,) = shell.caches()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    assert SECRET not in cache.read_text()
    # A fresh cache is enough: the lake is not asked.
    (tmp_path / "catalog.db").rename(tmp_path / "away.db")
    assert shell.bash("neve", "describe", "otel.l") == ["otel.logs"]
    old = time.time() - 61
    os.utime(cache, (old, old))
    assert shell.bash("neve", "describe", "otel.l") == []
    # Another configuration has names of its own.
    (tmp_path / "away.db").rename(tmp_path / "catalog.db")
    os.utime(tmp_path / "neve.yaml", (old, old))
    until(lambda: shell.bash("neve", "describe", "otel.l") == ["otel.logs"])


def test_a_catalog_that_does_not_answer_holds_nobody_up(tmp_path):
    with running_silent_server() as server:
        shell = Shell(tmp_path, {"type": "rest", "uri": server.uri})
        started = time.monotonic()
        assert shell.bash("neve", "describe", "") == []
        # A second, and the start of a process on a busy machine; the catalog's time-out is 60 s.
        assert time.monotonic() - started < 20
        assert shell.caches() == []
