"""How an audit ended; apart from the audits, so that reading a report loads no Spark."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AuditResult:
    """How one audit ended on one batch."""

    name: str
    check: str
    passed: bool
    failing: int
    total: int
    on_failure: str

    @property
    def blocks(self) -> bool:
        return not self.passed and self.on_failure == "block"

    @property
    def sets_aside(self) -> bool:
        return not self.passed and self.on_failure == "set_aside"
