"""The peak memory of some Python statements, measured in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

_READ_PEAK = """
def peak_megabytes():
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024
"""


def grown_megabytes(preparation: str, work: str) -> float:
    """Return by how much `work` raises the high-water mark that `preparation` left."""
    script = "\n".join(
        [
            _READ_PEAK,
            textwrap.dedent(preparation),
            "before = peak_megabytes()",
            textwrap.dedent(work),
            "print(peak_megabytes() - before)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.splitlines()[-1])
