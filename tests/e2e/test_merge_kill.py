"""The mirror is the replay: `neve merge` really killed at every step, and run again."""

from __future__ import annotations

import json
import signal

import pytest

import neve
from neve import failpoints
from neve.cli.app import run
from tests.support.command import neve_merge
from tests.support.lakes import sqlite_settings
from tests.support.merging import Mirrored, event

POINTS = [name for name in failpoints.POINTS if name.startswith("merge.")]
# Each is a start of Spark: the others are for the long runs.
ESSENTIAL = ("merge.applied",)


@pytest.fixture
def mirrored(embedded_lake, tmp_path):
    """`embedded_lake` keeps Spark running: only what is killed starts its own."""
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Mirrored(lake)


@pytest.fixture
def config(tmp_path, mirrored):
    return mirrored.write_config(tmp_path / "neve.yaml")


def kill(config, point, *options):
    told = neve_merge(config, *options, failpoint=point)
    assert told.returncode == -signal.SIGKILL, told.stderr


@pytest.fixture
def merge(config, capsys):
    """Run the command to its end; return what it says of the one table."""

    def merge():
        assert run(["--config", str(config), "--json", "merge", "--once"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        return row

    return merge


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "point",
    [pytest.param(name, marks=() if name in ESSENTIAL else pytest.mark.soak) for name in POINTS],
)
def test_a_merge_killed_at_any_step_leaves_the_replay(mirrored, config, merge, point, kills):
    """Killed once as it is made, and in the long runs once more as it lives, by files."""
    mirrored.append(event("I", 1, 1, "a"), event("D", 2, 2), event("?", 1, 3))
    kill(config, point)
    if kills == 2:
        # What the first batch left undone is by MERGE INTO; the second one has rows to be found.
        merge()
        mirrored.append(event("U", 3, 1, "b"), event("I", 3, 2, "again"), event("D", 4, 4))
        kill(config, point, "--strategy", "index")
    mirrored.append(event("I", 1, 2, "late"), event("U", 5, 1, "c"))
    assert merge()["outcome"] == "merged"
    mirrored.check()
    again = merge()
    assert (again["outcome"], again["events"]) == ("idle", 0)
    tombstones = mirrored.table("rows_tombstones").scan().to_arrow()["id"].to_pylist()
    assert sorted(tombstones) == [2, 4][:kills]
    assert len(mirrored.table("rows_rejected").scan().to_arrow()) == 1
