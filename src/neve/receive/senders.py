"""Who may send, how much, and by what a sender is recognised."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.buffer.payload import NO_SENDER, SENDER_BYTES
from neve.errors import Code, UnavailableError
from neve.otlp.bearer_tokens import BearerTokens
from neve.receive.rate import ByteRate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neve.receive.spec import TokenSpec

# No token has a space, so no sender with a name has the id of one without.
NAMED = b"sender name "


class SenderRateError(UnavailableError):
    """The sender has sent more than it may, and should come back later."""

    default_code = Code.SENDER_RATE


@dataclass(frozen=True, slots=True)
class Sender:
    """Whoever shows a token."""

    # Part of what makes two requests the same, as the buffer keeps it. Nobody can learn the token
    # from it.
    id: bytes
    # Empty where the configuration gives no name.
    name: str = ""


ANONYMOUS = Sender(NO_SENDER)


class Senders:
    """The bearer tokens that are let in; without any, everybody is.

    Of the event loop's thread only.
    """

    def __init__(
        self, tokens: Sequence[TokenSpec], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._rates: dict[Sender, ByteRate] = {}
        self.replace(tokens)

    @property
    def admits_everybody(self) -> bool:
        """Say whether no token is asked for."""
        return self._tokens.admits_everybody

    def replace(self, tokens: Sequence[TokenSpec]) -> None:
        """Let in other tokens from now on; a sender that stays goes on with its rate."""
        rates: dict[Sender, ByteRate] = {}
        senders = {token.token: _sender(token) for token in tokens}
        self._tokens = BearerTokens(senders, ANONYMOUS)
        for token in tokens:
            if token.max_bytes_per_second is None:
                continue
            sender = senders[token.token]
            rate = self._rates.get(sender) or ByteRate(token.max_bytes_per_second, self._clock)
            rate.change(token.max_bytes_per_second)
            rates[sender] = rate
        self._rates = rates

    def identify(self, authorization: str | None) -> Sender:
        """Return who sends, from the request's headers alone.

        Raises:
            RefusedError: the header is missing, or its token is not known.
            SenderRateError: the sender has sent more than it may.
        """
        sender = self._tokens.identify(authorization)
        self._check_rate(sender)
        return sender

    def charge(self, sender: Sender, size: int) -> None:
        """Count bytes that a sender has sent, as they came over the wire."""
        if rate := self._rates.get(sender):
            rate.charge(size)

    def _check_rate(self, sender: Sender) -> None:
        rate = self._rates.get(sender)
        wait_seconds = rate.wait_seconds() if rate else 0.0
        if wait_seconds:
            raise SenderRateError(
                "the sender has sent more than its max_bytes_per_second",
                hint="send less, or raise the bound in receive.tokens",
                retry_after_seconds=wait_seconds,
            )


def _sender(token: TokenSpec) -> Sender:
    # Of the name where there is one: a request sent again with the next token is still the same.
    identity = NAMED + token.name.encode() if token.name else token.token.encode()
    return Sender(hashlib.sha256(identity).digest()[:SENDER_BYTES], token.name)
