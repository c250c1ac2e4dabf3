"""Metrics of commits in CloudWatch's embedded metric format: a JSON object on a line of the log."""

from __future__ import annotations

import json
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from neve.observe.commits import CommitMeasured

NAMESPACE = "Neve"
# Each metric's unit, in CloudWatch's words.
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "CommitAttempts": "Count",
        "Commits": "Count",
        "CommitsNotConfirmed": "Count",
        "CommitConflicts": "Count",
        "CommitUnknownOutcomes": "Count",
        "CommitSeconds": "Seconds",
        "ManifestsWritten": "Count",
        "FilesWritten": "Count",
        "RowsWritten": "Count",
        "BytesWritten": "Bytes",
    }
)
# Of all tables together, and of each: a project has seven tables, so that this stays cheap.
_DIMENSIONS = (("Project", "Environment"), ("Project", "Environment", "Table"))


class EmbeddedMetrics:
    """Writes a line for each commit; a `CommitObserver`."""

    def __init__(
        self,
        stream: TextIO,
        *,
        project: str,
        environment: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream
        self._labels = {"Project": project, "Environment": environment}
        self._clock = clock

    def __call__(self, commit: CommitMeasured) -> None:
        line = json.dumps(self._document(commit), separators=(",", ":"))
        # In one write: CloudWatch reads a line as an event.
        self._stream.write(line + "\n")
        self._stream.flush()

    def _document(self, commit: CommitMeasured) -> dict[str, Any]:
        directive = {
            "Namespace": NAMESPACE,
            "Dimensions": [list(names) for names in _DIMENSIONS],
            "Metrics": [{"Name": name, "Unit": unit} for name, unit in UNITS.items()],
        }
        return {
            "_aws": {"Timestamp": int(self._clock() * 1000), "CloudWatchMetrics": [directive]},
            **self._labels,
            "Table": commit.table,
            **_values(commit),
        }


def _values(commit: CommitMeasured) -> dict[str, float]:
    return {
        "CommitAttempts": commit.attempts,
        "Commits": int(commit.committed),
        "CommitsNotConfirmed": int(not commit.committed),
        "CommitConflicts": commit.conflicts,
        "CommitUnknownOutcomes": commit.unknown_outcomes,
        "CommitSeconds": commit.seconds,
        "ManifestsWritten": commit.manifests,
        "FilesWritten": commit.files,
        "RowsWritten": commit.rows,
        "BytesWritten": commit.bytes,
    }
