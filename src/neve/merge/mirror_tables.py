"""A mirror and the tables beside it: made, given further columns, and restored after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from neve.errors import ConflictError
from neve.lake.java_tables import JavaTable
from neve.merge.checkpoint import BATCH_ID, CHECKPOINT, Checkpoint, side_summary
from neve.merge.mirror import changed_schema, mirror_properties, partition_spec, source_properties
from neve.merge.plan import Look, Observe
from neve.merge.side_tables import REJECTED_SCHEMA, SideTable, tombstones_schema

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.merge.batch import BatchWork
    from neve.merge.spec import MergeSpec


@dataclass(frozen=True)
class MirrorTables:
    """The tables of one mirror."""

    lake: Lake
    spec: MergeSpec

    def prepare(self, found: Look, observe: Observe) -> Look:
        """Make the mirror, or give it the columns it lacks; return how it is then. Idempotent.

        Args:
            observe: looks at the tables once more.
        """
        mirror = JavaTable(self.lake, self.lake.spark, self.lake.ref(self.spec.mirror))
        if found.mirror is None or found.state is None:
            partitions = partition_spec(self.spec, found.schema)
            sides = side_summary(self.tombstones(found).empty(), self.rejected().empty())
            mirror.create(
                found.schema.model_dump_json(),
                partitions.model_dump_json(),
                mirror_properties(self.spec, str(found.changelog.table_uuid)),
                {CHECKPOINT: Checkpoint(str(found.changelog.table_uuid)).encode(), **sides},
            )
            return self.prepare(observe(self.lake, self.spec), observe)
        # Where all rows are replaced, the commit that does so says what they come from.
        remembered = {} if found.rebuild else source_properties(self.spec, found)
        grown = found.drift.changes_mirror
        if grown or not remembered.items() <= found.mirror.properties.items():
            changed = changed_schema(found.drift).model_dump_json()
            mirror.union_schema(changed, remembered, dict(found.drift.renamed))
        return self.prepare(observe(self.lake, self.spec), observe) if grown else found

    def restore_side_tables(self, found: Look) -> None:
        """Restore the tables beside the mirror after another worker was first.

        What that worker had written there looked like something left behind, until its commit.
        """
        state = found.state
        if state is None:
            return
        tombstones, rejected = self.tombstones(found), self.rejected()
        for table, named in ((tombstones, state.tombstones_id), (rejected, state.rejected_id)):
            table.open()
            table.restore(state, named)

    def tombstones(self, found: Look) -> SideTable:
        schema = tombstones_schema(self.spec, found.schema)
        return SideTable(self.lake, self.spec, self.spec.tombstones, schema)

    def rejected(self) -> SideTable:
        return SideTable(self.lake, self.spec, self.spec.rejected, REJECTED_SCHEMA)


def write_rejected(
    work: BatchWork, rejected: SideTable, present: int | None, batch_id: str, now: datetime
) -> int | None:
    """Add what cannot be taken to `<mirror>_rejected`, or remove what was; return its snapshot.

    Args:
        present: its snapshot before.
    """
    mark = {BATCH_ID: batch_id}
    if work.retried is None:
        if not work.counts.set_aside:
            return present
        return rejected.append(rejected.write(work.rejected(batch_id, now, present)), mark)
    if work.batch.rejected_id != present:
        raise ConflictError(
            f"{rejected.staging.name}: main has moved away from snapshot {work.batch.rejected_id}",
            hint="it is tried again",
            retryable=True,
        )
    return rejected.replace(rejected.write(work.retried.remaining), mark)
