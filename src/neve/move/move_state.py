"""How far a move is, made from the lines of its journal. Pure."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from neve.errors import CorruptionError
from neve.move.files import WrittenFile

VERSION = 1


class Stage(str, Enum):
    """What is complete, in this order."""

    PLANNED = "planned"
    COPIED = "copied"
    REWRITTEN = "rewritten"
    VERIFIED = "verified"
    REGISTERED = "registered"


@dataclass(frozen=True)
class MoveHeader:
    """What a move moves: one version of a table, and where to.

    Args:
        source_metadata: the metadata file that the source's catalog named.
        document: its bytes: the version that is moved, whatever the source becomes.
        location: where the table's files go.
        options: what the command was asked, for people; no secrets.
    """

    id: str
    source_catalog: str
    source_table: str
    source_metadata: str
    target_catalog: str
    target_table: str
    location: str
    document: bytes = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True)
class MoveState:
    """What a journal says. `copied` and `rewritten` are shared with the journal that made it.

    Args:
        stage: the last stage that is complete; None: not even planned.
        copied: target path → checksum.
        rewritten: source path → the file at the target.
        facts: what stages left for later ones, such as the path of the new metadata.
        error: why the move stopped; None: it did not, or it was resumed.
        error_stage: the stage that it stopped before.
        is_running: a process has the journal open.
    """

    header: MoveHeader | None = None
    began_at: str | None = None
    changed_at: str | None = None
    stage: Stage | None = None
    copied: dict[str, str] = field(default_factory=dict)
    copied_bytes: int = 0
    rewritten: dict[str, WrittenFile] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    error_stage: Stage | None = None
    is_running: bool = False

    @property
    def rewrite_count(self) -> int:
        return len(self.rewritten)

    @property
    def rewrite_error(self) -> str | None:
        return self.error if self.error_stage is Stage.REWRITTEN else None

    @property
    def is_finished(self) -> bool:
        return self.stage is Stage.REGISTERED

    def after(self, record: Mapping[str, Any]) -> MoveState:
        """Return the state after a line; lines of an unknown kind change nothing."""
        kind = record["kind"]
        if kind == "copied":
            if record["target"] in self.copied:
                return self
            # In place: a table may have a million files.
            self.copied[record["target"]] = record["checksum"]
            return replace(self, copied_bytes=self.copied_bytes + record["size"])
        if kind == "rewritten":
            self.rewritten[record["source"]] = WrittenFile(record["target"], record["size"])
            return self
        return self._after_step(kind, record)

    def _after_step(self, kind: str, record: Mapping[str, Any]) -> MoveState:
        state = replace(self, changed_at=record["at"])
        if kind == "begun":
            return self._begun(record)
        if kind == "resumed":
            return replace(state, error=None, error_stage=None)
        if kind == "counted":
            return replace(state, counts={**self.counts, **record["counts"]})
        if kind == "reached":
            facts = {**self.facts, **record["facts"]}
            stage = Stage(record["stage"])
            return replace(state, stage=stage, facts=facts, error=None, error_stage=None)
        if kind == "failed":
            if record.get("is_damage"):
                state = replace(state, copied={}, copied_bytes=0, rewritten={})
            return replace(state, error=record["error"], error_stage=Stage(record["stage"]))
        return state

    def _begun(self, record: Mapping[str, Any]) -> MoveState:
        document = gzip.decompress(base64.b64decode(record["document"]))
        names = MoveHeader.__dataclass_fields__
        fields = {name: value for name, value in record.items() if name in names}
        header = MoveHeader(**{**fields, "document": document})
        begun = MoveState(
            header, began_at=record["at"], changed_at=record["at"], is_running=self.is_running
        )
        # Names at the target follow from the source's, so what lies there need not be copied again.
        if self.header is not None and self.header.location == header.location:
            return replace(begun, copied=self.copied, rewritten=self.rewritten)
        return begun


def replay(content: bytes, path: str, *, is_running: bool) -> tuple[MoveState, int]:
    """Return the state that a journal's lines make, and the length of its whole lines.

    Raises:
        CorruptionError: a line other than the last cannot be read, or is of a later version.
    """
    state, whole = MoveState(is_running=is_running), 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        end = whole + len(line)
        try:
            record = json.loads(line)
        except ValueError as error:
            record = error
        # What a power cut left of the last write.
        if end == len(content) and (isinstance(record, ValueError) or not line.endswith(b"\n")):
            break
        state = _after_line(state, record, f"line {number} of the journal {path}")
        whole = end
    return state, whole


def _after_line(state: MoveState, record: Any, where: str) -> MoveState:
    try:
        if record.get("version", VERSION) == VERSION:
            return state.after(record)
        reason = f"version {record['version']} is of a later Neve"
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError) as error:
        reason = str(record if isinstance(record, ValueError) else error)
    raise CorruptionError(
        f"{where} cannot be read: {reason}",
        hint="remove the journal: the move finds what it copied at the target again",
    )
