"""The mirror is the replay: a merge really killed at every step, and run again."""

from __future__ import annotations

import signal

import pytest
import yaml

import neve
from neve import failpoints
from neve.config import load
from tests.support.lakes import sqlite_settings
from tests.support.merge_worker import run_merge
from tests.support.merging import Mirrored, event

POINTS = [name for name in failpoints.POINTS if name.startswith("merge.")]
# Each is a start of Spark: the others are for the long runs.
ESSENTIAL = ("merge.applied",)


@pytest.fixture
def config(tmp_path):
    settings = sqlite_settings(tmp_path)
    path = tmp_path / "neve.yaml"
    document = settings.model_dump(mode="json", exclude_none=True, include={"catalog", "spark"})
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def mirrored(embedded_lake, config):
    with neve.open(load(config).settings) as lake:
        mirrored = Mirrored(lake)
        document = yaml.safe_load(config.read_text())
        table = mirrored.settings.model_dump(mode="json", exclude_none=True)
        config.write_text(yaml.safe_dump({**document, "merge": {"tables": [table]}}))
        yield mirrored


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "point",
    [pytest.param(name, marks=() if name in ESSENTIAL else pytest.mark.soak) for name in POINTS],
)
def test_a_merge_killed_at_any_step_leaves_the_replay(mirrored, config, point, kills):
    """Killed once as it is made, and in the long runs once more as it lives."""
    mirrored.append(event("I", 1, 1, "a"), event("D", 2, 2), event("?", 1, 3))
    assert run_merge(config, point) == -signal.SIGKILL
    if kills == 2:
        mirrored.merge()
        mirrored.append(event("U", 3, 1, "b"), event("I", 3, 2, "again"), event("D", 4, 4))
        assert run_merge(config, point) == -signal.SIGKILL
    mirrored.append(event("I", 1, 2, "late"), event("U", 5, 1, "c"))
    mirrored.merge()
    mirrored.check()
    assert mirrored.merge().outcome == "idle"
    tombstones = mirrored.table("rows_tombstones").scan().to_arrow()["id"].to_pylist()
    assert sorted(tombstones) == [2, 4][:kills]
    assert len(mirrored.table("rows_rejected").scan().to_arrow()) == 1
