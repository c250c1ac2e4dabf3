"""Random histories of consolidations, rollbacks, drops, replays and cuts: each row once."""

import contextlib
import random
from collections import Counter
from dataclasses import replace

import pytest
from pyiceberg.exceptions import NoSuchTableError

import neve
from neve import failpoints
from neve.buffer.buffer import open_buffer
from neve.consolidate.replay import replay_table
from neve.lake.staging import StagingTable
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered

STEPS = 25
POINTS = [
    "consolidate.written",
    "consolidate.published",
    "consolidate.retired",
    "publish.staged",
    "publish.ready",
    "publish.published",
    "buffer.retire_declared",
    "buffer.retire_removed",
]


class History:
    """A table, what is done to it, and what was acknowledged."""

    def __init__(self, lake, directory, seed):
        self.random = random.Random(seed)
        self.bench = Bench(lake, directory)
        # Small batches, so that a run makes several.
        self.bench.buffer = replace(self.bench.buffer, retain_seconds=3600)
        self.bench.spec = replace(self.bench.spec, buffer=self.bench.buffer, batch_bytes=400)
        self.sent = Counter()

    def send(self):
        """Send requests, each in a segment of its own; some of them to two receivers."""
        names = [f"r{len(self.sent) + n}" for n in range(self.random.randint(1, 3))]
        self.sent.update(f"{name} 0" for name in names)
        self.append(names)
        if self.random.random() < 0.3:
            self.append(self.random.sample(names, 1))

    def append(self, names):
        spec = replace(self.bench.buffer, dedup_seconds=0, seal_bytes=1)
        with open_buffer(spec, ["logs"]) as buffer:
            for name in names:
                request = buffered(protobuf(Signal.LOGS, name, 1))
                buffer.append("logs", request).durable.result(10)

    def run(self):
        self.bench.run()

    def replay(self):
        replay_table(self.bench.worker(), "otel.logs")

    def cut(self):
        action = self.random.choice([self.run, self.replay])
        point, passes = self.random.choice(POINTS), self.random.randint(1, 2)
        with contextlib.suppress(failpoints.PowerCut), failpoints.armed(point, passes):
            action()

    def roll_back(self):
        table = self.table()
        if table is None or table.current_snapshot() is None:
            return
        staging = StagingTable(self.bench.lake.profile, table)
        ids = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
        ancestors, snapshot = [], ids.get(staging.main_id)
        while snapshot is not None:
            ancestors.append(snapshot.snapshot_id)
            snapshot = ids.get(snapshot.parent_snapshot_id)
        chosen = self.random.choice(ancestors)
        table.manage_snapshots().rollback_to_snapshot(chosen).commit()

    def drop(self):
        if self.table() is not None and self.random.random() < 0.3:
            self.bench.lake.catalog().drop_table("otel.logs")

    def table(self):
        try:
            return self.bench.lake.catalog().load_table("otel.logs")
        except NoSuchTableError:
            return None

    def step(self):
        actions = [self.send] * 3 + [self.run] * 3 + [self.cut] * 3
        actions += [self.roll_back, self.roll_back, self.replay, self.drop]
        self.random.choice(actions)()
        if self.table() is not None:
            stored = self.bench.names("logs")
            assert max(stored.values(), default=1) == 1
            assert stored <= self.sent


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12))
def test_each_row_is_there_once_in_the_end(tmp_path, seed):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        history = History(lake, tmp_path, seed)
        history.send()
        for _ in range(STEPS):
            history.step()
        history.run()
        history.replay()
        assert history.bench.names("logs") == history.sent
        report = replay_table(history.bench.worker(), "otel.logs")
        assert report.segments == 0
