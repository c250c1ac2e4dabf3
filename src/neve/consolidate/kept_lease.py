"""A worker's turn at a signal: others stay away from it meanwhile, as far as that can be had."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from neve.errors import NeveError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.buffer.layout import StoredFile
    from neve.buffer.store import Lease

logger = logging.getLogger(__name__)

# So often is a lease kept in the time that it lasts: one that fails is not the end of it.
RENEWALS = 3
# A turn that takes longer than this is one of a worker that hangs: its lease is left to expire.
KEEP_SECONDS = 1800.0


class NoLease:
    """The `Lease` of those who do without: everybody holds it."""

    def hold(self, _listed: Sequence[StoredFile] | None = None) -> bool:
        return True

    def release(self) -> None:
        pass


class KeptLease:
    """A lease that is kept by a thread until the block ends.

    Only ever saves work. With a lease that cannot be had, since its store fails, work goes on.
    """

    def __init__(
        self, name: str, lease: Lease, seconds: float, keep_seconds: float = KEEP_SECONDS
    ) -> None:
        self.name = name
        # Another took the lease over, or may: this worker is thought dead.
        self.is_lost = False
        self._keep_seconds = keep_seconds
        self._lease = lease
        self._every_seconds = seconds / RENEWALS
        self._ended = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name=f"neve-lease-{name}", daemon=True)

    def begin(self, listed: Sequence[StoredFile] | None = None) -> bool:
        """Take the turn; False while it is another worker's.

        Args:
            listed: what a listing of the signal has just shown.
        """
        if not self._hold(listed):
            return False
        if self._every_seconds > 0:
            self._keeper.start()
        return True

    def __enter__(self) -> KeptLease:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._keeper.ident is not None:
            self._keeper.join()
        try:
            self._lease.release()
        except NeveError as failure:
            logger.warning("%s: the lease is left to expire: %s", self.name, failure)

    def _keep(self) -> None:
        began = time.monotonic()
        while not self._ended.wait(self._every_seconds):
            if time.monotonic() - began > self._keep_seconds:
                logger.warning(
                    "%s: the lease is left to expire after %g s", self.name, self._keep_seconds
                )
                self.is_lost = True
                return
            if not self._hold():
                logger.warning("%s: another worker took over", self.name)
                self.is_lost = True
                return

    def _hold(self, listed: Sequence[StoredFile] | None = None) -> bool:
        try:
            return self._lease.hold(listed)
        except Exception as failure:  # noqa: BLE001 - it only saves work, and work goes on
            logger.warning("%s: working without a lease: %s", self.name, failure)
            return True
