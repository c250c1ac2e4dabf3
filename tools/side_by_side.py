"""Run the tests in two pytest processes side by side: those that need Spark, and the others.

Most tests wait more than they compute, so that two processes take little more than the longer one.
The first prints as it goes; what the second printed comes at the end. Arguments go to both.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

PYTEST = (sys.executable, "-m", "pytest")
# tests/conftest.py marks every test that uses the Spark session of its process.
WITHOUT_SPARK = "not spark and not soak"
WITH_SPARK = "spark and not soak"
# pytest's exit status when a half has no test, such as of one file.
NONE_SELECTED = 5


def start(name: str, marks: str, arguments: list[str], output: int | None) -> subprocess.Popen[str]:
    # A cache of its own: what failed last is written at the end, and the later one would win.
    cache = f"cache_dir=.pytest_cache/{name}"
    return subprocess.Popen(
        [*PYTEST, "-m", marks, "-o", cache, *arguments],
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        text=True,
    )


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "with-spark")
        with log.open("w") as file:
            beside = start("with-spark", WITH_SPARK, arguments, file.fileno())
        first = start("without-spark", WITHOUT_SPARK, arguments, None)
        try:
            statuses = [first.wait(), _wait_for_last(beside)]
        except KeyboardInterrupt:
            # A terminal sends Ctrl-C to all three: wait until both have stopped their servers.
            statuses = [first.wait(), beside.wait()]
        sys.stdout.write(f"\nThe tests with Spark, which ran beside:\n{log.read_text()}")
    sys.stdout.write(f"both took {time.monotonic() - began:.0f} s\n")
    return next((status for status in statuses if status not in (0, NONE_SELECTED)), 0)


def _wait_for_last(process: subprocess.Popen[str]) -> int:
    if process.poll() is None:
        sys.stdout.write("The tests with Spark still run.\n")
        sys.stdout.flush()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
