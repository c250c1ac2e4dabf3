"""What a configuration asks of a receiver."""

from neve.config import ReceiveSettings
from neve.receive.spec import TokenSpec, token_specs

TOKENS = ["a-token-without-a-name", {"name": "shop", "token": "the-token-of-shop"}]


def test_tokens_are_taken_over_with_their_names():
    first, second = token_specs(ReceiveSettings(tokens=TOKENS))
    assert first == TokenSpec("a-token-without-a-name")
    assert second == TokenSpec("the-token-of-shop", "shop")
    assert "token-of" not in repr(second)


def test_each_worker_lets_in_its_share_of_a_rate():
    settings = ReceiveSettings(tokens=[TOKENS[0], {**TOKENS[1], "max_bytes_per_second": 1000}])
    assert [token.max_bytes_per_second for token in token_specs(settings, 4)] == [None, 250]
