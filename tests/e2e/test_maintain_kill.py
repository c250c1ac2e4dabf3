"""`neve maintain` really killed at each step, and run again: no row and no file too many."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
import yaml

import neve
from neve import failpoints
from neve.cli.app import run
from neve.telemetry.schemas import SCHEMAS
from tests.support.command import NEVE
from tests.support.lakes import sqlite_settings
from tests.support.leftovers import age_files, local_path, unreferenced_files
from tests.support.servers import SHORT_LIVED_JAVA

POINTS = [name for name in failpoints.POINTS if name.startswith(("compact.", "upkeep."))]
LOGS = "otel.logs"
# Every step has something to do: hours are closed, a day is too old, versions and orphans are old.
UPKEEP = {
    "reader_grace": 0,
    "retain": "1ms",
    "retain_min": 1,
    "keep_hourly": 0,
    "keep_daily": 0,
    "orphan_age": "1d",
    "tables": {LOGS: {"delete_rows_after": "30d"}},
}
FILES = 6
# More than one batch of deletions.
ORPHANS = 501


@pytest.fixture
def lake(embedded_lake, tmp_path):
    """`embedded_lake` keeps Spark running: only what is killed starts its own."""
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


@pytest.fixture
def config(lake, tmp_path):
    document = lake.settings.model_dump(
        mode="json", exclude_none=True, include={"catalog", "spark"}
    )
    path = tmp_path / "neve.yaml"
    path.write_text(yaml.safe_dump({**document, "upkeep": UPKEEP}))
    return path


def write(lake, hours):
    """Write files of two records into each hour; return what the records say."""
    said = Counter()
    with lake.writer() as writer:
        for hour in hours:
            for number in range(FILES):
                at = hour + timedelta(minutes=number)
                rows = [
                    {"timestamp": at, "received_at": at, "body": f"{at:%F %R} {row}"}
                    for row in range(2)
                ]
                batch = pa.Table.from_pylist(rows, SCHEMAS["logs"])
                assert writer.write_and_commit("logs", None, batch).committed
                said.update(row["body"] for row in rows)
    return said


def records(lake):
    return Counter(lake.catalog().load_table(LOGS).scan().to_arrow()["body"].to_pylist())


def leave_orphans(lake):
    """Leave files behind that no commit has named, and that are old enough to go."""
    data = local_path(lake.catalog().load_table(LOGS).location()) / "data"
    for number in range(ORPHANS):
        path = data / f"left-{number}.parquet"
        path.write_bytes(b"left")
        os.utime(path, (0, 0))


def kill(config, point):
    ended = subprocess.run(
        [NEVE, "--config", config, "--json", "maintain"],
        env={**os.environ, **SHORT_LIVED_JAVA, failpoints.ENVIRONMENT_VARIABLE: point},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr


@pytest.fixture
def maintain(config, capsys):
    """Run the command to its end; return what it says of the one table."""

    def maintain():
        assert run(["--config", str(config), "--json", "maintain"]) == 0
        (report,) = json.loads(capsys.readouterr().out)
        assert (report["error"], report["left"]) == (None, [])
        return report

    return maintain


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_maintenance_killed_at_any_step_is_finished_by_the_next_run(lake, config, maintain, point):
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = today - timedelta(days=1)
    old = write(lake, [today - timedelta(days=60)])
    kept = write(lake, [yesterday, yesterday + timedelta(hours=5)])
    leave_orphans(lake)
    kill(config, point)
    # Old rows go in one commit; what else was interrupted changes no row.
    assert records(lake) in (kept, kept + old)
    maintain()
    assert records(lake) == kept
    # What the killed run had written and not committed is young still: it goes a day later.
    age_files(lake.catalog())
    maintain()
    assert unreferenced_files(lake.catalog()) == set()
    assert records(lake) == kept
    assert len(lake.catalog().load_table(LOGS).metadata.snapshots) == 1
    assert maintain()["actions"] == 0
