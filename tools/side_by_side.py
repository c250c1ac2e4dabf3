"""Run the tests in three lanes side by side, each one pytest process after the other.

Most tests wait more than they compute, so that three lanes take little more than the longest one
on two cores. One lane prints as it goes; what the others printed comes at the end. Tests that
measure time or memory run alone afterwards. Arguments go to all of them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PYTEST = (sys.executable, "-m", "pytest")
# pytest's exit status when a part has no test, such as of one file.
NONE_SELECTED = 5
INTERRUPTED = 130
DIRECTORIES = frozenset({"e2e", "integration", "properties", "spark", "unit"})


@dataclass(frozen=True)
class Part:
    """The tests of one pytest process.

    tests/conftest.py marks each test: `spark` if it uses the Spark session of its process,
    `servers` if it starts processes of its own; and refuses one where nobody looks for it.
    """

    name: str
    marks: str
    directories: frozenset[str]
    ignored_files: str | None = None

    def command(self, arguments: list[str]) -> list[str]:
        # A cache of its own: what failed last is written at the end, and the last one would win.
        cache = f"cache_dir=.pytest_cache/{self.name.replace(' ', '-')}"
        # Collecting takes seconds. A directory that is new here is collected by all.
        ignored = [f"--ignore=tests/{name}" for name in sorted(DIRECTORIES - self.directories)]
        if self.ignored_files:
            ignored.append(f"--ignore-glob={self.ignored_files}")
        slowest = ["--durations=15", "--durations-min=4"]
        marks = f"({self.marks}) and not soak"
        return [*PYTEST, "-m", marks, "-o", cache, *slowest, *ignored, *arguments]


SERVERS = Part(
    "with servers",
    "servers and not spark and not timed",
    frozenset({"e2e", "integration"}),
)
# By their first letter, so that every file is in one of the two: changes, followers and versions,
# and all else.
SPARK_VERSIONS = Part(
    "with Spark and versions", "spark", frozenset({"spark"}), "tests/spark/test_[!cfv]*"
)
SPARK = Part("with Spark", "spark", frozenset({"properties", "spark"}), "tests/spark/test_[cfv]*")
NEITHER = Part(
    "without both", "not servers and not spark", frozenset({"properties", "spark", "unit"})
)
SPARK_ELSEWHERE = Part("with Spark elsewhere", "spark", frozenset({"e2e", "integration"}))
TIMED = Part("timed", "timed", frozenset({"e2e", "integration"}))

# What is shown while it runs, and what runs beside it. The three take about the same time.
SHOWN = (SERVERS, SPARK_VERSIONS)
BESIDE = ((SPARK,), (NEITHER, SPARK_ELSEWHERE))


def run_part(part: Part, arguments: list[str], output: IO[str] | None = None) -> int:
    error = subprocess.STDOUT if output else None
    with subprocess.Popen(part.command(arguments), stdout=output, stderr=error) as process:
        return process.wait()


def run_lane(
    parts: Iterable[Part], arguments: list[str], logs: Path, stopped: threading.Event
) -> list[int]:
    statuses = []
    for part in parts:
        if not stopped.is_set():
            with (logs / part.name).open("w") as log:
                statuses.append(run_part(part, arguments, log))
    return statuses


def run_lanes(arguments: list[str], logs: Path) -> list[int]:
    """Run all lanes to their end; after Ctrl-C no further part begins."""
    stopped = threading.Event()
    with ThreadPoolExecutor(len(BESIDE)) as pool:
        lanes = [pool.submit(run_lane, parts, arguments, logs, stopped) for parts in BESIDE]
        try:
            statuses = [run_part(part, arguments) for part in SHOWN]
            return statuses + [status for lane in lanes for status in lane.result()]
        except KeyboardInterrupt:
            # A terminal sends it to all processes: the pool waits until each stopped its servers.
            stopped.set()
            return [INTERRUPTED]


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        statuses = run_lanes(arguments, Path(directory))
        for part in (part for parts in BESIDE for part in parts):
            log = Path(directory, part.name)
            text = log.read_text() if log.exists() else "not begun\n"
            sys.stdout.write(f"\nThe tests {part.name}, which ran beside:\n{text}")
        sys.stdout.flush()
    if INTERRUPTED not in statuses:
        statuses.append(run_part(TIMED, arguments))
    sys.stdout.write(f"all took {time.monotonic() - began:.0f} s\n")
    return next((status for status in statuses if status not in (0, NONE_SELECTED)), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
