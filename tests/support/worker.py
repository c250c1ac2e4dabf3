"""A consolidation worker as a process, without Spark: python -m tests.support.worker CONFIG.

`NEVE_FAILPOINT` in the environment says where it dies; it ends once nothing waits.
"""

from __future__ import annotations

import sys

import neve
from neve.consolidate.apply import Consolidator
from neve.consolidate.spec import consolidate_spec
from tests.support.consolidation import run_inline


def main() -> None:
    with neve.open(sys.argv[1]) as lake:
        Consolidator(lake, consolidate_spec(lake.settings), run_inline).run_once()


if __name__ == "__main__":
    main()
