"""Names of Neve in tables, for those who only look at metadata."""

from __future__ import annotations

# Properties of a mirror: its changelog, its key columns, and the root of its index.
SOURCE = "neve.merge.changelog"
KEYS = "neve.merge.keys"
ROOT_PROPERTY = "neve.index.root"
# In the summary of each merge's commit: what of the changelog is in the mirror.
CHECKPOINT = "neve.merge.checkpoint"
# Of a table beside a mirror: whose it is. A table without it is not Neve's to change.
SIDE_OF = "neve.merge.side-of"
# The table of batches.
LEDGER = ("neve", "batches")
