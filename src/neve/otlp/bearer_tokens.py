"""Bearer tokens: who sends, from a request's `Authorization` header alone."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Generic, TypeVar

from neve.errors import Code, NeveError

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME = "bearer"

Owner = TypeVar("Owner")


class RefusedError(NeveError):
    """The sender did not show a token that is known."""

    default_code = Code.REFUSED


class BearerTokens(Generic[Owner]):
    """The tokens that are let in, each with its owner; without any, everybody is."""

    def __init__(self, owners: Mapping[str, Owner], anonymous: Owner) -> None:
        self._owners = {_digest(token): owner for token, owner in owners.items()}
        self._anonymous = anonymous

    @property
    def admits_everybody(self) -> bool:
        """Say whether no token is asked for."""
        return not self._owners

    def identify(self, authorization: str | None) -> Owner:
        """Return whose token a request shows.

        Raises:
            RefusedError: the header is missing, or its token is not known.
        """
        if self.admits_everybody:
            return self._anonymous
        scheme, _, token = (authorization or "").partition(" ")
        shown = token.strip()
        # Against all of them, as digests of one length: the time taken tells nothing.
        digest = _digest(shown)
        owners = [
            owner for known, owner in self._owners.items() if hmac.compare_digest(digest, known)
        ]
        if not owners or not shown or scheme.lower() != SCHEME:
            raise RefusedError("a valid bearer token is required")
        return owners[0]


def _digest(token: str) -> bytes:
    # A header may hold characters that no encoding has, such as half of a pair.
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
