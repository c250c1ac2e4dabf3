"""Metadata documents are the same JSON, however much of them is known."""

import json

import pytest

from neve.lake import metadata_encoder
from neve.lake.metadata_encoder import MetadataEncoder


def document(snapshots, **others):
    log = [{"snapshot-id": each["snapshot-id"], "timestamp-ms": 1} for each in snapshots]
    return {"format-version": 2, "snapshots": snapshots, "snapshot-log": log, **others}


def decoded(encoder, value):
    return json.loads(b"".join(encoder.encode(value)))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"snapshots": []},
        {"snapshots": None, "refs": {}},
        {"snapshots": [{"snapshot-id": 1}]},
        {"location": '/warehouse/s p"ace-ä', "snapshots": [{"snapshot-id": 1}, {"snapshot-id": 2}]},
    ],
)
def test_a_document_is_what_it_was(value):
    assert decoded(MetadataEncoder(), value) == value


def test_snapshots_of_an_earlier_document_are_not_encoded_again(monkeypatch):
    encoded = []
    to_json = metadata_encoder.to_json

    def counting(value):
        encoded.append(value)
        return to_json(value)

    monkeypatch.setattr(metadata_encoder, "to_json", counting)
    encoder = MetadataEncoder()
    snapshots = [{"snapshot-id": number, "summary": {"ä": '"'}} for number in range(100)]
    first = document(snapshots)
    assert decoded(encoder, first) == first
    encoded.clear()
    added = {"snapshot-id": 100}
    entry = {"snapshot-id": 100, "timestamp-ms": 2}
    second = {
        **first,
        "snapshots": [*snapshots[10:], added],
        "snapshot-log": [*first["snapshot-log"][10:], entry],
    }
    assert decoded(encoder, second) == second
    assert encoded == [{"format-version": 2}, added, entry]
    # One that a tag kept has others removed before and behind it.
    third = {**second, "snapshots": [snapshots[10], *snapshots[30:]]}
    assert decoded(encoder, third) == third
    shorter = {**second, "snapshots": snapshots[30:40]}
    assert decoded(encoder, shorter) == shorter
    assert decoded(encoder, first) == first
