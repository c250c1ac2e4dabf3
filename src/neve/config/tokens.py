"""The bearer tokens of `receive.tokens`: who may send, by what name, and how much."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, model_validator

from neve.config.section import ByteCount, Section
from neve.limits import SENDER_NAME_CHARACTERS, TOKEN_CHARACTERS


class TokenSettings(Section):
    """A bearer token, and the name of the sender that shows it."""

    name: str | None = Field(
        None,
        description=(
            "Name of the sender, the same for all its tokens: a column of the tables and a label "
            "of the metrics."
        ),
    )
    token: SecretStr = Field(description="What the sender shows as Authorization: Bearer.")
    max_bytes_per_second: ByteCount | None = Field(
        None,
        gt=0,
        description="How much the sender may send, as compressed; unset means no bound of its own.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_entry(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        entry = {"token": value} if isinstance(value, str) else value
        if not isinstance(entry, dict):
            # Of the errors a validator raises, pydantic reports those of this type.
            raise ValueError("write a text in quotes, or name and token")  # noqa: TRY004
        token = entry.get("token")
        # A secret that was read from a file often ends in a line break.
        return {**entry, "token": token.strip()} if isinstance(token, str) else entry

    @model_validator(mode="after")
    def _check_texts(self) -> TokenSettings:
        token = self.token.get_secret_value()
        if not token:
            raise ValueError("the token is empty, and would let everybody in")
        if not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("a token has printable ASCII characters only, and no white space")
        if self.name is not None:
            _check_name(self.name)
        return self


def _check_name(name: str) -> None:
    if not name or name != name.strip() or not name.isprintable():
        raise ValueError("a name has printable characters, and no white space around them")
    if len(name) > SENDER_NAME_CHARACTERS:
        raise ValueError(f"a name has {SENDER_NAME_CHARACTERS} characters at most")


def _check_strength(entry: TokenSettings, info: ValidationInfo) -> TokenSettings:
    is_weak = len(entry.token.get_secret_value()) < TOKEN_CHARACTERS
    if is_weak and not info.data.get("allow_weak_tokens"):
        raise ValueError(
            f"the token has fewer than {TOKEN_CHARACTERS} characters, and can be guessed; make one "
            "with: openssl rand -hex 32 (receive.allow_weak_tokens accepts it)"
        )
    return entry


def _check_together(entries: tuple[TokenSettings, ...]) -> tuple[TokenSettings, ...]:
    places: dict[str, int] = {}
    rates: dict[str, tuple[int, int | None]] = {}
    for place, entry in enumerate(entries):
        earlier = places.setdefault(entry.token.get_secret_value(), place)
        if earlier != place:
            raise ValueError(f"entries {earlier} and {place} are the same token")
        if entry.name is None:
            continue
        first, rate = rates.setdefault(entry.name, (place, entry.max_bytes_per_second))
        if rate != entry.max_bytes_per_second:
            raise ValueError(
                f"entries {first} and {place} are both {entry.name!r}: give them the same "
                "max_bytes_per_second"
            )
    return entries


Tokens = Annotated[
    tuple[Annotated[TokenSettings, AfterValidator(_check_strength)], ...],
    AfterValidator(_check_together),
]
