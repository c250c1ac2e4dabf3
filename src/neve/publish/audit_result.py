"""How an audit ended; apart from the audits, so that reading a report loads no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class AuditResult:
    """How one audit ended on one batch."""

    name: str
    check: str
    passed: bool
    failing: int
    total: int
    on_failure: str

    def recounted(self, failing: Mapping[str, int]) -> AuditResult:
        """Return the result with the rows that were set aside for it, if it sets rows aside."""
        if self.on_failure != "set_aside":
            return self
        return replace(self, failing=failing.get(self.name, 0))

    @property
    def blocks(self) -> bool:
        return not self.passed and self.on_failure == "block"

    @property
    def sets_aside(self) -> bool:
        return not self.passed and self.on_failure == "set_aside"
