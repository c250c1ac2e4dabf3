"""What a move is asked to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from neve.errors import UsageError


class Engine(str, Enum):
    """Where manifests are rewritten."""

    LOCAL = "local"
    SPARK = "spark"


class Verification(str, Enum):
    """How much is compared before a table is registered."""

    SAMPLE = "sample"
    FULL = "full"


class Existing(str, Enum):
    """What becomes of a table that the target catalog has already."""

    REFUSE = "refuse"
    EXTEND = "extend"
    REPLACE = "replace"


@dataclass(frozen=True)
class MoveSpec:
    """How tables are moved.

    Args:
        target: the name of the catalog they go to.
        location: the address that the table is put under; None: where the target catalog puts it.
        rewrite: paths are mapped to the target; without it, files must be where metadata says.
        bytes_per_second: of all copies together; None: no limit.
        tables_at_once: tables that are moved at the same time.
        files_at_once: files of one table that are copied at the same time.
    """

    target: str
    location: str | None = None
    rewrite: bool = True
    existing: Existing = Existing.REFUSE
    verification: Verification = Verification.SAMPLE
    engine: Engine = Engine.LOCAL
    bytes_per_second: int | None = None
    tables_at_once: int = 2
    files_at_once: int = 16

    def __post_init__(self) -> None:
        if self.location and not self.rewrite:
            raise UsageError(
                "a table that is not rewritten stays where it is, and cannot have a location",
                hint="leave out --location or --skip-rewrite",
            )
