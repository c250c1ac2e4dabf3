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
            statuses = [first.wait(), beside.wait()]
        except KeyboardInterrupt:
            # A terminal sends Ctrl-C to all three: wait until both have stopped their servers.
            statuses = [first.wait(), beside.wait()]
        sys.stdout.write(f"\nand beside them, those with Spark:\n{log.read_text()}")
    sys.stdout.write(f"both took {time.monotonic() - began:.0f} s\n")
    # 5: none was selected, such as of one file.
    return max(status if status != 5 else 0 for status in statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
