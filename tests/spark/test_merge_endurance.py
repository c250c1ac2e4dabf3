"""Many merges in a row, and merges beside a compaction that never rests."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time

import pytest

import neve
from neve.index.status import status
from neve.index.verify import verify
from neve.lake.identifier import parse_identifier
from neve.merge.strategy import Strategy
from tests.support.lakes import sqlite_settings
from tests.support.merging import Mirrored, event
from tests.support.wait import until

pytestmark = pytest.mark.soak
SEED = 5
MERGES = 200
ROWS = 20_000
# As the policy of the index has it, and as promised for integers.
MOST_DELTAS = 8
MOST_BYTES_AN_ENTRY = 24
# The few keys of a delta lie in a bucket each, which its directory and its footer describe.
CHANGES = 51
MOST_BYTES_A_BUCKET = 512

COMPACTOR = """
import sys
from pathlib import Path
import neve
from tests.support.lakes import sqlite_settings
directory, table, stop = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
with neve.open(sqlite_settings(directory)) as lake:
    done = 0
    while not stop.exists():
        try:
            lake.sql(
                f"CALL system.rewrite_data_files(table => '{table}', "
                "options => map('min-input-files', '2', 'delete-file-threshold', '1'))"
            ).collect()
            done += 1
        except neve.NeveError as error:
            print(f"refused: {error.message[:80]}", flush=True)
        stop.with_name("compacted").write_text(str(done))
"""


def wave(chance, number, keys=400):
    start = number * 100
    return [
        event(chance.choice("IUUUD"), start + n, chance.randrange(keys), f"{number}/{n}")
        for n in range(CHANGES - 1)
    ] + [event("U", max(0, start - 300), chance.randrange(keys), "late")]


def test_two_hundred_merges_in_a_row_stay_as_fast(embedded_lake, capsys):
    mirrored = Mirrored(embedded_lake, strategy=Strategy.INDEX)
    chance = random.Random(SEED)
    identifier = parse_identifier(mirrored.mirror)
    # So many that deltas pile up: all of them together grow to half of the base only at the end.
    mirrored.append(*(event("I", 0, key, "first") for key in range(ROWS)))
    mirrored.merge()
    merges, queries, indexes = [], [], []
    for number in range(1, MERGES + 1):
        mirrored.append(*wave(chance, number, ROWS))
        started = time.monotonic()
        mirrored.merge()
        merges.append(time.monotonic() - started)
        indexes.append(status(embedded_lake, identifier))
        if number % 20 == 0:
            started = time.monotonic()
            embedded_lake.query(f"SELECT count(*), sum(lsn) FROM {mirrored.mirror}")
            queries.append(time.monotonic() - started)
            mirrored.check()
    deltas = [one.deltas for one in indexes]
    per_entry = [one.bytes / one.entries for one in indexes]
    with capsys.disabled():
        print(  # noqa: T201 - what a long run was made for
            f"\nseed {SEED}: merges {statistics.median(merges[:20]):.2f} s at first, "
            f"{statistics.median(merges[-20:]):.2f} s at last, {max(merges):.2f} s at most; "
            f"queries {' '.join(f'{one:.2f}' for one in queries)} s; at most {max(deltas)} deltas; "
            f"{indexes[0].bytes} to {indexes[-1].bytes} bytes, at most {max(per_entry):.1f} a row"
        )
    assert {one.state for one in indexes} == {"fresh"}
    assert 1 < max(deltas) <= MOST_DELTAS
    for one in indexes:
        most = one.entries * MOST_BYTES_AN_ENTRY + one.deltas * CHANGES * MOST_BYTES_A_BUCKET
        assert one.bytes < most
    assert verify(embedded_lake, identifier).differences == 0
    assert statistics.median(merges[-20:]) < 3 * statistics.median(merges[5:25])


def test_merges_beside_a_compaction_in_another_process(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        mirrored = Mirrored(lake, strategy=Strategy.INDEX)
        chance = random.Random(SEED)
        mirrored.append(*wave(chance, 0))
        mirrored.merge()
        stop = tmp_path / "stop"
        arguments = [str(tmp_path), mirrored.mirror, str(stop)]
        compactor = subprocess.Popen([sys.executable, "-c", COMPACTOR, *arguments])
        try:
            until((tmp_path / "compacted").exists, seconds=60)
            reports = []
            for number in range(1, 25):
                mirrored.append(*wave(chance, number))
                reports.append(mirrored.merge(attempts=12))
                mirrored.check()
        finally:
            stop.touch()
            compactor.wait(60)
        print(  # noqa: T201 - what a long run was made for
            f"seed {SEED}: {(tmp_path / 'compacted').read_text()} compactions,",
            f"{sum(one.conflicts for one in reports)} conflicts,",
            f"{sum(one.index_files_indexed for one in reports)} files indexed again,",
            f"{sum(one.index_rebuilds for one in reports)} rebuilds",
        )
        assert verify(lake, parse_identifier(mirrored.mirror)).differences == 0
