"""A merge as a process of its own, with its own Spark, that can be killed for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import neve
from neve import failpoints
from neve.merge.apply import Merger
from neve.merge.spec import merge_specs
from tests.support.servers import SHORT_LIVED_JAVA

DEADLINE_SECONDS = 180
_ROOT = Path(__file__).parents[2]


def run_merge(config: Path, failpoint: str) -> int:
    """Merge what waits, in a process that dies at `failpoint`; return its exit status."""
    environment = {
        **os.environ,
        **SHORT_LIVED_JAVA,
        failpoints.ENVIRONMENT_VARIABLE: failpoint,
        "PYTHONPATH": str(_ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(config)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode <= 0, done.stderr
    return done.returncode


def main(config: str) -> None:
    with neve.open(config) as lake:
        for spec in merge_specs(lake.settings):
            Merger(lake, spec).merge()


if __name__ == "__main__":
    main(sys.argv[1])
