"""What this process and all that it has started take: processor time, and memory at its peak."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SAMPLE_SECONDS = 0.1
TICKS = os.sysconf("SC_CLK_TCK")


class Processes:
    """This process and all that it started: their processor time, the largest worker, Java."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self.java_peak_mib = 0.0
        self.processor_seconds = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Processes:
        self._before = sum(map(_seconds, _tree()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.processor_seconds = sum(map(_seconds, _tree())) - self._before
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            processes = list(_tree())
            workers = filter(_is_worker, processes)
            self.peak_mib = max([self.peak_mib, *map(_peak_mib, workers)])
            java = filter(_is_java, processes)
            self.java_peak_mib = max([self.java_peak_mib, *map(_peak_mib, java)])


def _tree() -> Iterator[Path]:
    """Return this process and all below it."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, StopIteration):
            lines = (process / "status").read_text().splitlines()
            parent = next(line for line in lines if line.startswith("PPid:"))
            children.setdefault(int(parent.split()[1]), []).append(int(process.name))
    waiting = [os.getpid()]
    while waiting:
        number = waiting.pop()
        waiting += children.get(number, ())
        yield Path("/proc") / str(number)


def _is_worker(process: Path) -> bool:
    with suppress(OSError):
        return b"pyspark.daemon" in (process / "cmdline").read_bytes()
    return False


def _is_java(process: Path) -> bool:
    with suppress(OSError):
        return (process / "comm").read_text().strip() == "java"
    return False


def _seconds(process: Path) -> float:
    """Return the processor time of a process and of its children that have ended."""
    with suppress(OSError):
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    return 0.0


def _peak_mib(process: Path) -> float:
    with suppress(OSError, StopIteration):
        lines = (process / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    return 0.0
