"""Run the tests in three pytest processes side by side: with Spark, with servers, and the others.

Most tests wait more than they compute, so that three processes take little more than the longest
one on two cores. One prints as it goes; what the others printed comes at the end. Tests that
measure time or memory run alone afterwards. Arguments go to all of them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

PYTEST = (sys.executable, "-m", "pytest")
# tests/conftest.py marks each test: `spark` if it uses the Spark session of its process, `servers`
# if it starts processes of its own.
SHOWN = ("with servers", "servers and not spark and not timed and not soak")
BESIDE = (
    ("with Spark", "spark and not soak"),
    ("without both", "not servers and not spark and not soak"),
)
AFTERWARDS = ("timed", "timed and not soak")
# pytest's exit status when a part has no test, such as of one file.
NONE_SELECTED = 5


def start(name: str, marks: str, arguments: list[str], output: int | None) -> subprocess.Popen[str]:
    # A cache of its own: what failed last is written at the end, and the last one would win.
    cache = f"cache_dir=.pytest_cache/{name.replace(' ', '-')}"
    return subprocess.Popen(
        [*PYTEST, "-m", marks, "-o", cache, *arguments],
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        text=True,
    )


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        logs = {name: Path(directory, str(number)) for number, (name, _) in enumerate(BESIDE)}
        processes = []
        for name, marks in BESIDE:
            with logs[name].open("w") as file:
                processes.append(start(name, marks, arguments, file.fileno()))
        processes.insert(0, start(*SHOWN, arguments, None))
        try:
            statuses = [process.wait() for process in processes]
        except KeyboardInterrupt:
            # A terminal sends Ctrl-C to all of them: wait until each has stopped its servers.
            statuses = [process.wait() for process in processes]
        for name, log in logs.items():
            sys.stdout.write(f"\nThe tests {name}, which ran beside:\n{log.read_text()}")
            sys.stdout.flush()
    statuses.append(start(*AFTERWARDS, arguments, None).wait())
    sys.stdout.write(f"all took {time.monotonic() - began:.0f} s\n")
    return next((status for status in statuses if status not in (0, NONE_SELECTED)), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
