"""Tokens, the senders that show them, and their rates, on a clock of the test's own."""

import hashlib

import pytest

from neve.errors import UnavailableError
from neve.otlp import answer
from neve.otlp.bearer_tokens import RefusedError
from neve.receive.senders import ANONYMOUS, SenderRateError, Senders
from neve.receive.spec import TokenSpec


class Clock:
    """Time that passes when the test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def named(token, name="shop", rate=None):
    return TokenSpec(token, name, rate)


def test_without_tokens_everybody_is_one_sender():
    senders = Senders(())
    assert senders.admits_everybody
    assert senders.identify(None) == senders.identify("Bearer x") == ANONYMOUS


@pytest.mark.parametrize("header", [None, "", " ", "Bearer", "Bearer ", "Bearer  ", "Basic x"])
def test_an_empty_token_matches_nothing_even_where_one_is_known(header):
    # The configuration refuses an empty token; this is the second lock on the same door.
    senders = Senders((TokenSpec(""),))
    assert not senders.admits_everybody
    with pytest.raises(RefusedError):
        senders.identify(header)


def test_a_token_without_a_name_is_remembered_as_before():
    # As buffers of earlier versions have it, so that what is sent again stays one request.
    [sender] = {Senders((TokenSpec("token"),)).identify(f"{s} token") for s in ("Bearer", "bearer")}
    assert (sender.id, sender.name) == (hashlib.sha256(b"token").digest()[:16], "")


def test_a_named_sender_stays_the_same_when_its_token_is_replaced():
    senders = Senders((named("old"), named("new"), named("other", "warehouse"), TokenSpec("shop")))
    old, new, other, unnamed = (
        senders.identify(f"Bearer {token}") for token in ("old", "new", "other", "shop")
    )
    assert old == new
    assert old.name == "shop"
    assert len({old.id, other.id, unnamed.id}) == 3
    assert len(old.id) == 16


def test_replaced_tokens_hold_at_once():
    senders = Senders((named("old"),))
    senders.replace((named("new"),))
    assert senders.identify("Bearer new").name == "shop"
    with pytest.raises(RefusedError):
        senders.identify("Bearer old")


def test_a_rate_lets_in_a_burst_then_what_was_paid_for(clock):
    senders = Senders((named("token", rate=100),), clock)
    shop = senders.identify("Bearer token")
    senders.charge(shop, 500)
    senders.identify("Bearer token")
    senders.charge(shop, 250)
    with pytest.raises(SenderRateError) as caught:
        senders.identify("Bearer token")
    assert caught.value.retry_after_seconds == pytest.approx(2.5)
    assert answer.retry_after_seconds(caught.value, 9) == 3
    assert (answer.http_status(caught.value), answer.grpc_status(caught.value)) == (503, 14)
    clock.now += 2.4
    with pytest.raises(SenderRateError):
        senders.identify("Bearer token")
    clock.now += 0.2
    assert senders.identify("Bearer token") == shop


def test_a_rate_does_not_save_up_more_than_a_burst(clock):
    senders = Senders((named("token", rate=100),), clock)
    clock.now += 3600
    senders.charge(senders.identify("Bearer token"), 600)
    with pytest.raises(SenderRateError) as caught:
        senders.identify("Bearer token")
    assert caught.value.retry_after_seconds == pytest.approx(1.0)


def test_all_tokens_of_a_sender_share_its_rate_and_others_have_their_own(clock):
    tokens = (named("a", rate=10), named("b", rate=10), named("c", "other", 10), TokenSpec("d"))
    senders = Senders(tokens, clock)
    senders.charge(senders.identify("Bearer a"), 1000)
    with pytest.raises(SenderRateError):
        senders.identify("Bearer b")
    assert senders.identify("Bearer c").name == "other"
    unnamed = senders.identify("Bearer d")
    senders.charge(unnamed, 10**9)
    assert senders.identify("Bearer d") == unnamed


def test_a_replaced_token_does_not_forgive_what_was_sent(clock):
    senders = Senders((named("old", rate=10),), clock)
    senders.charge(senders.identify("Bearer old"), 1050)
    senders.replace((named("new", rate=100),))
    with pytest.raises(SenderRateError) as caught:
        senders.identify("Bearer new")
    assert caught.value.retry_after_seconds == pytest.approx(10.0)
    senders.replace((named("new"),))
    assert senders.identify("Bearer new").name == "shop"


def test_other_failures_say_when_to_come_back_by_default():
    assert answer.retry_after_seconds(UnavailableError("full"), 2) == 2
    assert answer.retry_after_seconds(RefusedError("who?"), 2) is None
