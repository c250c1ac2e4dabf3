"""Keep dead letters from filling the disk: a retention, and a limit on their bytes.

A dead letter is acknowledged data, so none is removed silently: each removal is counted, and one
that comes before the retention has passed is logged as a warning. The alternative, to stop until a
person has looked, would let one sender of unusable records stop everybody (decision 8).
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from neve.buffer.dead_letters import PREFIX
from neve.buffer.window import NANOS
from neve.errors import NeveError

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.buffer.spec import BufferSpec
    from neve.buffer.store import BufferStore

logger = logging.getLogger(__name__)

# How often they are listed while none is added.
LOOK_SECONDS = 300.0
# With many dead letters a listing takes long. The pause between two is this many times as long.
PAUSE_FACTOR = 10


@dataclass(frozen=True)
class RemovedLetters:
    """How many dead letters were removed, by the reason."""

    expired: int = 0
    over_limit: int = 0


@dataclass(frozen=True)
class _Letter:
    """The files of one dead letter: its document, and maybe a damaged segment."""

    paths: tuple[str, ...]
    size: int
    modified_unix_nano: int


class DeadLetterLimit:
    """Removes dead letters past their retention, then the oldest past the limit."""

    def __init__(
        self, store: BufferStore, spec: BufferSpec, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._max_bytes = spec.dead_letters_max_bytes
        self._retain_seconds = spec.dead_letters_retain_seconds
        self._clock = clock
        self._next_look = 0.0
        self._next_look_after_adding = 0.0

    def enforce_when_due(self, *, added: bool) -> RemovedLetters:
        """Enforce both, if dead letters were added or the last look was long ago.

        Best effort: what fails is tried again at the next look.
        """
        now = self._clock()
        if now < (self._next_look_after_adding if added else self._next_look):
            return RemovedLetters()
        started = time.monotonic()
        removed = RemovedLetters()
        try:
            removed = self.enforce()
        except NeveError as error:
            logger.warning("the dead letters were not looked at: %s", error)
        self._next_look = now + LOOK_SECONDS
        self._next_look_after_adding = now + PAUSE_FACTOR * (time.monotonic() - started)
        return removed

    def enforce(self) -> RemovedLetters:
        """Remove what is past the retention or the limit, oldest first. Raises StorageError."""
        letters = sorted(self._letters(), key=lambda letter: letter.modified_unix_nano)
        keep_since = (self._clock() - self._retain_seconds) * NANOS
        excess = sum(letter.size for letter in letters) - self._max_bytes
        expired: list[_Letter] = []
        over_limit: list[_Letter] = []
        for letter in letters:
            if letter.modified_unix_nano < keep_since:
                expired.append(letter)
            elif excess > 0:
                over_limit.append(letter)
            else:
                break
            excess -= letter.size
        self._remove(expired, over_limit)
        return RemovedLetters(len(expired), len(over_limit))

    def _letters(self) -> list[_Letter]:
        # Sorted by path, so the files of one dead letter follow each other.
        by_stem = groupby(self._store.files(PREFIX), key=lambda file: file.path.rpartition(".")[0])
        letters = []
        for _, group in by_stem:
            files = list(group)
            letters.append(
                _Letter(
                    tuple(file.path for file in files),
                    sum(file.size for file in files),
                    max(file.modified_unix_nano for file in files),
                )
            )
        return letters

    def _remove(self, expired: list[_Letter], over_limit: list[_Letter]) -> None:
        self._store.delete([path for letter in (*expired, *over_limit) for path in letter.paths])
        if expired:
            logger.info("removed %s dead letters past their retention", len(expired))
        if over_limit:
            logger.warning(
                "removed the %s oldest dead letters before their time: together they were larger "
                "than buffer.dead_letters_max_bytes (%s)",
                len(over_limit),
                self._max_bytes,
            )
