"""Dead letters to be replayed, and what became of them."""

from __future__ import annotations

from neve.buffer.dead_letters import DeadRequest, set_aside
from neve.signals import Signal
from tests.support.buffer_stores import payloads
from tests.support.otlp_bodies import message


def set_one_aside(store, name, signal=Signal.LOGS, position=0, paths=(1,), **changes):
    """Set the second of three records aside; its segment was retired and dropped long ago."""
    request = message(signal, name, 3)
    resources, scopes, records = signal.levels
    path = f"{resources}[0].{scopes}[0].{records}"
    dead = DeadRequest(
        stream=f"{signal.value}/20260101T000000Z-0123456789ab",
        segment=1,
        position=position,
        received_unix_nano=17,
        reasons=tuple((f"{path}[{n}]", "why") for n in paths) if paths else (("", "why"),),
        payload=request.SerializeToString(),
        sender=b"s" * 16,
        sender_name="shop",
    )
    set_aside(store, dead)
    return dead


def stored(store):
    """Return the bodies of all records that a consumer would get."""
    names = []
    for payload in payloads(store):
        request = Signal.LOGS.request.FromString(payload)
        names += [r.body.string_value for r in request.resource_logs[0].scope_logs[0].log_records]
    return sorted(names)
