"""The Puffin index: from a key's hash to the file, position and sequence of its row.

An accelerator, never the truth: whatever happens to it, it can be made anew from the table.
"""

from neve.index.hashing import PkHash, compute_pk_hash
from neve.index.memory import PuffinIndex
from neve.index.splitmix import splitmix64

__all__ = ["PkHash", "PuffinIndex", "compute_pk_hash", "splitmix64"]
