"""How much time is left, asked before each step."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from neve.errors import UnavailableError
from neve.lake.timeouts import bounded_by

# A step that was begun in time may take so long. It is about what a commit takes.
STEP_SECONDS = 1.0


@dataclass(frozen=True)
class Deadline:
    """The end of the time that a request has."""

    remaining_seconds: Callable[[], float]

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        end = clock() + seconds
        return cls(lambda: end - clock())

    def at_most(self, seconds: float) -> Deadline:
        """Return the earlier end: this one, or the one after so many seconds."""
        other = Deadline.after(seconds)
        return Deadline(lambda: min(self.remaining_seconds(), other.remaining_seconds()))

    def bounds_requests(self) -> AbstractContextManager[None]:
        """Let no request to a catalog that is sent in the block end much later than this."""
        return bounded_by(lambda: self.remaining_seconds() + STEP_SECONDS)

    def require(self, step: str, seconds: float = 0.0) -> None:
        """Refuse to begin a step for which too little time is left.

        Raises:
            UnavailableError: nothing of the step was done.
        """
        left = self.remaining_seconds()
        if left <= seconds:
            raise UnavailableError(
                f"too little time is left for {step}: {max(left, 0.0):.1f} s",
                hint="send smaller requests, or allow more time: direct.deadline_seconds, and the "
                "function's time-out on AWS Lambda",
            )
