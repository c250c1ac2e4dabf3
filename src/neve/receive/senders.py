"""Who may send, and by what name a sender is remembered."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from neve.buffer.payload import NO_SENDER, SENDER_BYTES
from neve.errors import Code, NeveError

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEME = "bearer"


class RefusedError(NeveError):
    """The sender did not show a token that is known."""

    default_code = Code.REFUSED


class Senders:
    """The bearer tokens that are let in; without any, everybody is."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = [token.encode() for token in tokens]

    def sender(self, authorization: str | None) -> bytes:
        """Return the sender's name, made of its token, which nobody can learn from it.

        Raises:
            RefusedError: the header is missing, or its token is not known.
        """
        if not self._tokens:
            return NO_SENDER
        scheme, _, token = (authorization or "").partition(" ")
        shown = token.strip().encode() if scheme.lower() == SCHEME else b""
        # Against all of them, whatever was found: the time taken tells nothing.
        matches = [hmac.compare_digest(shown, known) for known in self._tokens]
        if not any(matches):
            raise RefusedError("a valid bearer token is required")
        return hashlib.sha256(shown).digest()[:SENDER_BYTES]
