"""What a write to the ledger costs when it is young, a week old and a month old.

    python -m benchmarks.ledger

Processor time of one write, on an embedded lake in a scratch directory. The age is made, not waited
for: the current snapshot lists the manifests that so many writes leave behind. With upkeep those
are few at any age; without it there is one for each 270 writes.
"""

from __future__ import annotations

import gc
import json
import tempfile
import time
from pathlib import Path

import neve
from neve.buffer.spec import BufferSpec
from neve.config import Settings
from neve.lake import Lake
from neve.publish import ledger
from neve.publish.ledger import LedgerWriter
from neve.upkeep.spec import UpkeepSpec
from tests.support.ledgers import FILES_IN_MANIFEST, entry, make_older

WEEK, MONTH = 7 * 86_400, 30 * 86_400
# As upkeep leaves them between two looks at a ledger that is written to every ten seconds.
SNAPSHOTS = 60
MEASURED_WRITES = 25
WANTED_SECONDS = 0.1


def main() -> None:
    with_upkeep = UpkeepSpec(BufferSpec("")).compact_ledger_files // FILES_IN_MANIFEST
    young = _measure(0)
    _print("ledger_write_young", young, young)
    _print("ledger_write_any_age", _measure(with_upkeep), young)
    for name, age in (("week", WEEK), ("month", MONTH)):
        writes = age // ledger.WRITE_SECONDS
        seconds = _measure(int(writes / FILES_IN_MANIFEST))
        _print(f"ledger_write_{name}_without_upkeep", seconds, young)


def _measure(manifests: int) -> tuple[float, float]:
    """Return the mean and the greatest processor time of a write."""
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings.model_validate(
            {
                "catalog": {
                    "uri": f"sqlite:///{directory}/catalog.db",
                    "warehouse": str(Path(directory, "warehouse")),
                }
            }
        )
        with neve.open(settings) as lake:
            return _measure_in(lake, manifests)


def _measure_in(lake: Lake, manifests: int) -> tuple[float, float]:
    writer = LedgerWriter(lake, interval_seconds=0)
    for number in range(SNAPSHOTS):
        writer.add([entry(number)])
        writer.write()
    table = lake.catalog().load_table(ledger.IDENTIFIER)
    make_older(table, manifests)
    measured = []
    writer = LedgerWriter(lake, interval_seconds=0)
    # As a worker does once everything is loaded. Python's collector runs in the measured writes.
    gc.freeze()
    # The first write loads the table, which a worker does once.
    for number in range(MEASURED_WRITES + 1):
        writer.add([entry(number)])
        began = time.process_time()
        writer.write()
        measured.append(time.process_time() - began)
    return sum(measured[1:]) / MEASURED_WRITES, max(measured[1:])


def _print(name: str, seconds: tuple[float, float], young: tuple[float, float]) -> None:
    mean, most = seconds
    line = {
        "name": name,
        "value": round(mean, 4),
        "unit": "s of processor time",
        "most": round(most, 4),
        "ratio": round(mean / young[0], 2),
        "wanted": f"<= {WANTED_SECONDS} s",
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
