"""Keep the ledger's metadata small, so that a write to it costs the same however old it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neve.lake.compaction import rewrite_data_files
from neve.lake.faults import explained
from neve.publish.ledger import LEDGER_PROPERTIES

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from neve.lake import Lake
    from neve.upkeep.spec import UpkeepSpec

logger = logging.getLogger(__name__)


def compact_ledger(lake: Lake, table: Table, spec: UpkeepSpec) -> int:
    """Rewrite the ledger's small files into few; return how many files there were before.

    Idempotent; off the path of batches. A ledger of an older version has thousands of manifests and
    lacks the properties that let writers merge them. It comes down in steps, and the properties are
    set at its last: set before, the next writer would merge all manifests in one write.
    """
    files = _data_files(table)
    if files >= spec.compact_ledger_files:
        logger.info("%s: rewriting %d files", ".".join(table.name()), files)
        rewrite_data_files(lake, lake.ref(table.name()), spec.max_files_to_rewrite)
        with explained(lake.profile):
            table.refresh()
    missing = {
        key: value for key, value in LEDGER_PROPERTIES.items() if key not in table.properties
    }
    if missing and _data_files(table) < spec.compact_ledger_files:
        with explained(lake.profile), table.transaction() as transaction:
            transaction.set_properties(missing)
    return files if files >= spec.compact_ledger_files else 0


def _data_files(table: Table) -> int:
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("total-data-files", 0))
