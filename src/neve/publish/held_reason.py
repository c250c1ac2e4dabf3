"""Why a batch is held: the audits that blocked it, as a property of its table.

The audits run after the batch was staged, so its snapshot's summary cannot say it. The property is
set in the commit that holds the batch, and removed in the one that shows or drops it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neve.publish.audit_result import AuditResult

_PREFIX = "neve.held-by."


@dataclass(frozen=True)
class BlockingAudit:
    """An audit that held a batch back, and how many of the batch's rows failed it."""

    audit: str
    check: str
    failing: int
    total: int


def held_by_property(batch_id: str) -> str:
    """Name the property that says why a batch is held."""
    return _PREFIX + batch_id


def encode_blocking(results: Iterable[AuditResult]) -> str:
    """Write down the audits that block a batch."""
    return json.dumps(
        [[each.name, each.check, each.failing, each.total] for each in results if each.blocks]
    )


def read_blocking(properties: Mapping[str, str], batch_id: str) -> tuple[BlockingAudit, ...] | None:
    """Return the audits that hold a batch back; None: an earlier Neve held it and did not say."""
    text = properties.get(held_by_property(batch_id))
    return None if text is None else tuple(BlockingAudit(*entry) for entry in json.loads(text))
