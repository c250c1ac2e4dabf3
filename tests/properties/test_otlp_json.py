"""The two forms of a request: the same records, or a refusal of one kind."""

import base64
import contextlib
import json
import random

from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import MalformedError
from neve.otlp.json_mapping import to_json
from neve.otlp.request import check
from neve.signals import Signal
from tests.support.otlp_messages import fill

signals = st.sampled_from(Signal)
seeds = st.integers(0, 2**32)
slow = settings(derandomize=True, deadline=None, max_examples=60)


def otlp_json(message):
    """Protobuf's own JSON, with ids in hex and enumerations as numbers."""
    return with_hex_ids(json_format.MessageToDict(message, use_integers_for_enums=True))


def with_hex_ids(node):
    if isinstance(node, list):
        return [with_hex_ids(member) for member in node]
    if not isinstance(node, dict):
        return node
    return {
        key: base64.b64decode(value).hex()
        if key in ("traceId", "spanId", "parentSpanId")
        else with_hex_ids(value)
        for key, value in node.items()
    }


@given(signals, seeds)
@slow
def test_json_and_protobuf_are_the_same_request(signal, seed):
    message = fill(signal.request(), random.Random(seed))
    body = message.SerializeToString()
    of_protobuf = check(signal, body, json=False)
    of_json = check(signal, json.dumps(otlp_json(message)).encode(), json=True)
    assert to_json(message) == otlp_json(message)
    assert of_json.records == of_protobuf.records
    assert signal.request.FromString(of_json.payload).SerializeToString(
        deterministic=True
    ) == message.SerializeToString(deterministic=True)


def strange(rng, node):
    """A JSON document with one of its values replaced by something else."""
    if isinstance(node, dict) and node and rng.random() < 0.9:
        key = rng.choice(list(node))
        return {**node, key: strange(rng, node[key])}
    if isinstance(node, list) and node and rng.random() < 0.9:
        position = rng.randrange(len(node))
        return [*node[:position], strange(rng, node[position]), *node[position + 1 :]]
    return rng.choice([None, True, 0, -1, 1.5, 1e300, 10**25, "x", "9" * 30, "é", [], [[]], {}])


@given(signals, seeds)
@slow
def test_strange_json_is_taken_or_refused_and_nothing_else(signal, seed):
    rng = random.Random(seed)
    document = strange(rng, otlp_json(fill(signal.request(), rng)))
    try:
        parsed = check(signal, json.dumps(document).encode(), json=True)
    except MalformedError:
        return
    assert check(signal, parsed.payload, json=False).records == parsed.records


@given(signals, st.binary(max_size=200), st.booleans())
@slow
def test_bytes_are_taken_or_refused_and_nothing_else(signal, body, is_json):
    with contextlib.suppress(MalformedError):
        check(signal, body, json=is_json)
