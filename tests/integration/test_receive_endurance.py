"""A receiver under full load for a while, with a consumer behind it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.bodies import RECORDS
from neve.buffer.disk import DiskStore
from neve.buffer.reader import BufferReader
from tests.support.receivers import receiver

SECONDS = 45
MAX_MEGABYTES = 400


@pytest.mark.soak
def test_full_load_loses_nothing_and_memory_stays_flat(tmp_path):
    consumer = Consumer(BufferReader(DiskStore(tmp_path), dedup_seconds=300))
    with receiver(tmp_path, buffer={"seal_bytes": 5_000_000}) as running:
        consumer.start()
        command = [sys.executable, "-m", "benchmarks.load", str(running.http), str(SECONDS)]
        told = subprocess.run([*command, "8", "0"], check=True, capture_output=True)
        load = json.loads(told.stdout)
        assert load["statuses"] == {"200": load["requests"]}
        assert _peak_megabytes(running.process.pid) < MAX_MEGABYTES
        assert running.stop() == 0
    consumer.finish()
    assert consumer.records == load["requests"] * RECORDS


class Consumer(threading.Thread):
    """Counts the records of segments as they are sealed, and retires them."""

    def __init__(self, reader: BufferReader) -> None:
        super().__init__(daemon=True)
        self.records = 0
        self._reader = reader
        self._last = threading.Event()

    def run(self) -> None:
        while not self._last.wait(0.2):
            self._consume()
        self._consume()

    def finish(self) -> None:
        """Consume what is left."""
        self._last.set()
        self.join()

    def _consume(self) -> None:
        for stream in self._reader.streams():
            for segment in self._reader.segments(stream.stream):
                for batch in self._reader.read(segment):
                    self.records += sum(batch["records"].to_pylist())
                self._reader.retire(stream.stream, segment.number)


def _peak_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024
