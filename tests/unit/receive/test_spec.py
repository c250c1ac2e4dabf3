"""What a configuration asks of a receiver."""

from neve.config import ReceiveSettings, Settings
from neve.receive.spec import TokenSpec, receive_spec, token_specs

TOKENS = ["a-token-without-a-name", {"name": "shop", "token": "the-token-of-shop"}]


def test_tokens_are_taken_over_with_their_names():
    first, second = token_specs(ReceiveSettings(tokens=TOKENS), workers=1)
    assert first == TokenSpec("a-token-without-a-name")
    assert second == TokenSpec("the-token-of-shop", "shop")
    assert "token-of" not in repr(second)


def test_each_worker_lets_in_its_share_of_a_rate():
    tokens = [TOKENS[0], {**TOKENS[1], "max_bytes_per_second": 1000}]
    spec = receive_spec(Settings(receive={"workers": 4, "tokens": tokens}))
    assert [token.max_bytes_per_second for token in spec.tokens] == [None, 250]


def test_one_request_always_fits_into_memory_as_it_came_and_unpacked():
    spec = receive_spec(Settings(receive={"max_request_bytes": 200 << 20}))
    assert spec.max_in_flight_bytes == 400 << 20
    assert receive_spec(Settings()).max_in_flight_bytes == 128 << 20
