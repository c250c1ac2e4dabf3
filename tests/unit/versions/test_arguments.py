"""Versions, modes and keys as people give them."""

from datetime import date, datetime, timezone

import numpy as np
import pytest

from neve.errors import UsageError
from neve.versions.arguments import parse_keys, parse_options, parse_version


@pytest.mark.parametrize(
    ("given", "version"),
    [
        (7, 7),
        (np.int64(7), 7),
        ("7", "7"),
        ("v1", "v1"),
        ("2026-11-01", "2026-11-01"),
        (date(2026, 11, 1), datetime(2026, 11, 1, tzinfo=timezone.utc)),
        (datetime(2026, 11, 1, tzinfo=timezone.utc), datetime(2026, 11, 1, tzinfo=timezone.utc)),
    ],
)
def test_a_version(given, version):
    assert parse_version(given) == version
    assert type(parse_version(given)) is type(version)


@pytest.mark.parametrize("given", [None, True, 1.5, b"v1", ["v1"]])
def test_no_version(given):
    with pytest.raises(UsageError, match=f"not {type(given).__name__}"):
        parse_version(given)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("id", ["id"]),
        (" a , b.c ", ["a", "b.c"]),
        ("`a,b`,`x``y`, c d", ["a,b", "x`y", "c d"]),
    ],
)
def test_keys(text, keys):
    assert parse_keys("ns.t", text) == keys


@pytest.mark.parametrize("text", ["", " ", "a,", ",a", "a,,b", "`a", "`a`b", "``"])
def test_no_keys(text):
    with pytest.raises(UsageError, match=r"ns\.t: .* is no list of key columns"):
        parse_keys("ns.t", text)


def test_options():
    assert parse_options("ns.t", {}) == ("changes", None)
    assert parse_options("ns.t", {"mode": "net", "keys": "a, b"}) == ("net", ["a", "b"])
    for options in ({"mode": "NET"}, {"modes": "net"}):
        with pytest.raises(UsageError, match=r"ns\.t: there is no"):
            parse_options("ns.t", options)
