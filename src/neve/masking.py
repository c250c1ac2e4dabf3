"""Keep secrets out of what people read: passwords in addresses by their place, others by value."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "********"

# A part of a name that says its value is secret.
SECRET_NAME = re.compile(
    r"secret|passw|passphrase|token|credential|private|authorization|"
    r"(access|api|account).?key$",
    re.IGNORECASE,
)
# Up to the last @ before the path: a password may hold one.
_LOGIN = re.compile(r"(?<=//)(?P<user>[^/@:\s]*):[^/\s]*(?=@)")
_PARAMETER = re.compile(r"(?P<name>[?&;][\w.-]*=)(?P<value>[^&;\s'\"]+)")
# Shorter texts stand in words by chance. A secret this short is masked by its place alone.
_LEAST_CHARACTERS = 4
# Longer ones do not, and are masked also where they are glued to something.
_LONG_CHARACTERS = 8


def mask_logins(text: str) -> str:
    """Hide the passwords of addresses: `//user:password@host` and `?password=…`."""
    if "//" not in text:
        return text
    return _PARAMETER.sub(_masked_parameter, _LOGIN.sub(rf"\g<user>:{HIDDEN}", text))


def _masked_parameter(match: re.Match[str]) -> str:
    return match["name"] + (HIDDEN if SECRET_NAME.search(match["name"]) else match["value"])


class SecretMask:
    """Hides given secrets in any text, and the passwords of addresses."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secrets)
        # The longest first: one may be a part of another.
        patterns = [
            re.escape(secret)
            if len(secret) >= _LONG_CHARACTERS
            else rf"(?<!\w){re.escape(secret)}(?!\w)"
            for secret in sorted(self._secrets, key=len, reverse=True)
            if len(secret) >= _LEAST_CHARACTERS
        ]
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    def with_secrets(self, secrets: Iterable[str]) -> SecretMask:
        return SecretMask(self._secrets.union(secrets))

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(HIDDEN, text)
        return mask_logins(text)
