"""Names that are stored in users' tables: when one changes, Neve denies what it made before."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import neve

NAME = re.compile(r"neve\.[a-z_.-]+")
# A file, a table of the code's own, a package's module, loggers, attributes of metrics, and
# settings for tasks.
NOT_STORED = {
    "neve.yaml",
    "neve.demo",
    "neve.lake",
    "neve.service",
    "neve.lake.session.started",
    "neve.buffer.writer",
    "neve.committed",
    "neve.direct",
    "neve.index-cache.bytes",
    "neve.index-cache.directory",
    "neve.kept",
    "neve.signal",
    "neve.table",
}
STORED = {
    "neve.append-id",
    "neve.batch-id",
    "neve.batch-ranges",
    "neve.contains",
    "neve.counts",
    "neve.duplicates",
    "neve.follow-position.",
    "neve.follow.",
    "neve.follow.position",
    "neve.forgot-buffer",
    "neve.held",
    "neve.held-by.",
    "neve.index.root",
    "neve.kept-versions",
    "neve.ledger-write-id",
    "neve.mark.",
    "neve.merge.batch-id",
    "neve.merge.changelog",
    "neve.merge.checkpoint",
    "neve.merge.columns",
    "neve.merge.events",
    "neve.merge.keys",
    "neve.merge.rejected-snapshot-id",
    "neve.merge.sequence",
    "neve.merge.side-of",
    "neve.merge.tombstones-snapshot-id",
    "neve.merge.truncated-at",
    "neve.moved",
    "neve.other-marks",
    "neve.ranges",
    "neve.read-from",
    "neve.rejected-snapshot",
    "neve.rejected.",
    "neve.removed-appends",
    "neve.settled-manifests",
    "neve.replay",
    "neve.rewrite-id",
}


def test_names_in_tables_stay():
    texts = {
        node.value
        for path in Path(neve.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {text for text in texts if NAME.fullmatch(text)} - NOT_STORED == STORED
