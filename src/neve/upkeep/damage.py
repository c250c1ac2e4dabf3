"""Which file of a table cannot be read, and the newest version that can. Writes nothing.

A version can be read if its manifest list and all of its manifests can: each is decoded, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from neve.errors import CorruptionError, NotFoundError
from neve.lake.history import history
from neve.lake.manifests import Manifest, ManifestReader
from neve.upkeep.mirror_facts import commits_after

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson


@dataclass(frozen=True)
class Damage:
    """A file of the current version that cannot be read, and what going back would cost.

    Args:
        snapshot_id: the current snapshot.
        readable_id: the newest snapshot of `main` that can be read completely; None: there is none.
        lost_commits: commits of `main` after it.
        lost_rows: rows that they have added, by their summaries; None: a summary does not say it.
        returning_rows: rows that they have removed, which come back.
    """

    snapshot_id: int
    file: str
    reason: str
    readable_id: int | None = None
    readable_since: datetime | None = None
    lost_commits: int = 0
    lost_rows: int | None = None
    returning_rows: int | None = None


def find_damage(metadata: MetadataJson, read: Callable[[str], bytes]) -> Damage | None:
    """Read the manifests of the current version; where one fails, those of older versions.

    Args:
        read: returns the content of a file.

    Raises:
        StorageError: the store does not answer, so that nobody knows.
    """
    if metadata.current_snapshot_id is None:
        return None
    check = _VersionCheck(ManifestReader(read))
    damage: Damage | None = None
    for snapshot in commits_after(metadata, None) or ():
        broken = check.first_unreadable(snapshot)
        if damage is None:
            if broken is None:
                return None
            damage = Damage(snapshot["snapshot-id"], *broken)
        if broken is None:
            return _with_readable(damage, metadata, snapshot["snapshot-id"])
    return damage


def _with_readable(damage: Damage, metadata: MetadataJson, readable_id: int) -> Damage:
    lost = {each["snapshot-id"] for each in commits_after(metadata, readable_id) or ()}
    versions = {each.snapshot_id: each for each in history(metadata)}
    commits = [versions[number] for number in lost]
    return Damage(
        damage.snapshot_id,
        damage.file,
        damage.reason,
        readable_id,
        versions[readable_id].committed_at,
        len(commits),
        _sum([each.added_rows for each in commits]),
        _sum([each.removed_rows for each in commits]),
    )


def _sum(numbers: list[int | None]) -> int | None:
    return None if None in numbers else sum(each or 0 for each in numbers)


@dataclass
class _VersionCheck:
    reader: ManifestReader
    # Versions share most manifests: why each cannot be read; empty: it can.
    _reasons: dict[str, str] = field(default_factory=dict)

    def first_unreadable(self, snapshot: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return a file of a version that cannot be read, and why; None: all can."""
        path = str(snapshot.get("manifest-list") or "")
        manifests: list[Manifest] = []
        reason = _failure(path, lambda: manifests.extend(self.reader.read_list(path)))
        if reason:
            return path, reason
        for manifest in manifests:
            if manifest.path not in self._reasons:
                self._reasons[manifest.path] = self._why_unreadable(manifest)
            if self._reasons[manifest.path]:
                return manifest.path, self._reasons[manifest.path]
        return None

    def _why_unreadable(self, manifest: Manifest) -> str:
        return _failure(
            manifest.path, lambda: sum(1 for _ in self.reader.statistics([manifest], ()))
        )


def _failure(path: str, read: Callable[[], object]) -> str:
    """Say why a file cannot be read. A store that does not answer raises: that is no damage."""
    try:
        read()
    except NotFoundError:
        return "it is not there"
    except CorruptionError as error:
        return error.message.replace(path, "it")
    except (ValueError, LookupError, TypeError, EOFError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
