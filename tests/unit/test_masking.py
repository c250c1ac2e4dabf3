"""Secrets are hidden by their place and their value, and ordinary words are not."""

import pytest

from neve.config import Settings
from neve.config.reference import secrets, secrets_to_mask
from neve.errors import CatalogError
from neve.masking import HIDDEN, SecretMask, mask_logins


def postgres(uri, **more):
    return Settings.model_validate(
        {"catalog": {"type": "postgres", "uri": uri, "warehouse": "/w", **more}}
    )


def test_a_word_of_the_configuration_is_not_hidden_since_it_is_a_password_too():
    settings = postgres("postgresql://postgres:postgres@127.0.0.1/postgres")
    mask = SecretMask(secrets_to_mask(settings))
    told = "catalog.type postgres at postgresql://postgres:postgres@127.0.0.1/postgres"
    assert mask(told) == (
        f"catalog.type postgres at postgresql://postgres:{HIDDEN}@127.0.0.1/postgres"
    )


def test_secrets_are_hidden_by_value_wherever_they_stand():
    uri = "postgresql://me:p%40ss-word@h/d?sslpassword=other-pass&sslmode=require"
    properties = {"header.Authorization": "Bearer abcdefgh12", "s3.region": "eu-1"}
    settings = postgres(uri, properties=properties)
    mask = SecretMask(secrets_to_mask(settings))
    for secret in ("p%40ss-word", "p@ss-word", "other-pass", "abcdefgh12"):
        assert secret in secrets(settings)
        assert mask(f"xx{secret}yy") == f"xx{HIDDEN}yy"
    assert mask("region eu-1 of host h, sslmode=require") == (
        "region eu-1 of host h, sslmode=require"
    )


@pytest.mark.parametrize("secret", ["hunter2", "s3cr"])
def test_short_secrets_are_hidden_as_words_and_not_within_words(secret):
    mask = SecretMask({secret})
    assert mask(f"login with '{secret}' failed, {secret}.") == (
        f"login with '{HIDDEN}' failed, {HIDDEN}."
    )
    assert mask(f"a{secret}") == f"a{secret}"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("at s3://bucket/a:b@c now", "at s3://bucket/a:b@c now"),
        ("postgresql://u:p@ss@h/d", f"postgresql://u:{HIDDEN}@h/d"),
        ("jdbc:postgresql://h/d?password=x y", f"jdbc:postgresql://h/d?password={HIDDEN} y"),
        ("http://127.0.0.1:4318 and a@b", "http://127.0.0.1:4318 and a@b"),
    ],
)
def test_passwords_of_addresses_are_hidden(text, masked):
    assert mask_logins(text) == masked


def test_an_error_says_what_to_do_and_never_a_password_of_an_address():
    error = CatalogError("postgresql://u:pw@h is down", hint="try http://u:pw@h")
    assert str(error) == f"postgresql://u:{HIDDEN}@h is down (try http://u:{HIDDEN}@h)"
    assert (error.message, error.hint) == (
        f"postgresql://u:{HIDDEN}@h is down",
        f"try http://u:{HIDDEN}@h",
    )
    assert str(CatalogError("down")) == "down"
