"""`neve buffer`: status; dead letters: list, show, replay, purge."""

from __future__ import annotations

import json
import os
import time

import pytest

from neve.buffer.dead_letters import (
    DeadRequest,
    list_dead_letters,
    set_aside,
    set_segment_aside,
)
from neve.buffer.disk import DiskStore
from neve.buffer.identity import read_identity
from neve.buffer.reader import BufferReader, Segment
from neve.cli.app import run
from neve.signals import Signal
from tests.support.otlp_bodies import message

STREAM = "logs/20260101T000000Z-0123456789ab"
RECORD = "resource_logs[0].scope_logs[0].log_records[1]"


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("NEVE_BUFFER__LOCATION", str(tmp_path / "buffer"))
    return DiskStore(tmp_path / "buffer")


def put(store, position=0, reasons=((RECORD, "too late"),), **changes):
    values = {
        "stream": STREAM,
        "segment": 1,
        "position": position,
        "received_unix_nano": 1_700_000_000_000_000_000,
        "reasons": reasons,
        "payload": message(Signal.LOGS, f"log {position}", 3).SerializeToString(),
        "sender_name": "shop",
    }
    dead = DeadRequest(**{**values, **changes})
    set_aside(store, dead)
    return dead.path


def answer(capsys, *arguments, status=0):
    assert run(["--json", "buffer", "dead-letters", *arguments]) == status
    return json.loads(capsys.readouterr().out)


def test_they_are_listed_with_their_reasons(store, capsys):
    assert answer(capsys) == []
    path = put(store, reasons=((RECORD, "too late"), ("", "whole")))
    assert answer(capsys) == [
        {
            "stream": STREAM,
            "segment": 1,
            "position": 0,
            "path": where,
            "reason": reason,
            "file": path,
        }
        for where, reason in ((RECORD, "too late"), ("", "whole"))
    ]
    assert run(["buffer", "dead-letters"]) == 0
    assert "too late" in capsys.readouterr().out


def test_one_is_shown_with_the_records_that_were_set_aside(store, capsys):
    path = put(store)
    shown = answer(capsys, "show", path)
    assert shown["file"] == path
    assert shown["sender_name"] == "shop"
    assert shown["received_at"].startswith("2023-11-14T22:13:20")
    [reason] = shown["reasons"]
    assert reason["reason"] == "too late"
    assert reason["record"] == {"body": {"stringValue": "log 0 1"}}
    assert run(["buffer", "dead-letters", "show", path]) == 0
    assert "log 0 1" in capsys.readouterr().out


def test_a_whole_request_is_shown_whole_and_what_cannot_be_read_as_none(store, capsys):
    whole = answer(capsys, "show", put(store, reasons=(("", "why"),)))
    assert len(whole["reasons"][0]["record"]["resourceLogs"]) == 1
    broken = answer(capsys, "show", put(store, 1, payload=b"\xff\xff"))
    assert broken["reasons"][0]["record"] is None
    set_segment_aside(store, Segment(STREAM, 9, 4, "path"), b"data", "damaged")
    damaged = answer(capsys, "show", f"dead-letters/{STREAM}/000000000009.json")
    assert damaged["reasons"] == [{"path": "", "reason": "damaged", "record": None}]


def test_replay_stores_what_is_named(store, capsys):
    first, second = put(store, 0), put(store, 1)
    done = answer(capsys, "replay", first)
    assert (done["requests"], done["records"], done["skipped"]) == (1, 1, [])
    assert [file.path for file in list_dead_letters(store)] == [second]
    [stream] = BufferReader(store, dedup_seconds=300).streams("logs")
    assert [stream.stream] == done["streams"]
    assert answer(capsys, "replay", "--all")["requests"] == 1
    assert answer(capsys, "replay", "--all")["requests"] == 0


def test_replay_ends_with_3_when_some_could_not_be(store, capsys):
    path = put(store, payload=b"\xff\xff")
    done = answer(capsys, "replay", "--all", status=3)
    assert [skipped["file"] for skipped in done["skipped"]] == [path]
    assert run(["buffer", "dead-letters", "replay", "--all"]) == 3
    assert path in capsys.readouterr().out


def test_purge_removes_what_is_named_or_old_or_all(store, capsys):
    paths = [put(store, position) for position in range(4)]
    old = time.time() - 3 * 3600
    os.utime(store._root / paths[1], (old, old))
    assert answer(capsys, "purge", paths[0])["removed"] == 1
    assert answer(capsys, "purge", "--older-than", "4h")["removed"] == 0
    assert answer(capsys, "purge", "--older-than", "2h")["removed"] == 1
    assert [file.path for file in list_dead_letters(store)] == paths[2:]
    assert answer(capsys, "purge", "--all")["removed"] == 2
    assert list_dead_letters(store) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "name files, or say --all"),
        (["purge"], "name files, or say --all"),
        (["replay", "--all", f"dead-letters/{STREAM}/000000000001-000000.json"], "name files"),
        (["purge", "--all", "--older-than", "1h"], "name files"),
        (["purge", "--older-than", "soon"], "--older-than soon"),
        (["purge", "--older-than=-5"], "in the future"),
        (["purge", "--older-than", "nan"], "--older-than nan"),
        (["show", "../../neve.yaml"], "not a dead letter"),
        (["purge", "logs/x"], "not a dead letter"),
    ],
)
def test_what_makes_no_sense_is_refused(store, capsys, arguments, said):
    put(store)
    assert run(["buffer", "dead-letters", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert len(list_dead_letters(store)) == 1


def test_one_that_is_not_there_is_told(store, capsys):
    assert run(
        ["buffer", "dead-letters", "show", f"dead-letters/{STREAM}/000000000001-000000.json"]
    )
    assert "does not exist" in capsys.readouterr().err


def test_status_shows_the_identity_and_makes_none(store, capsys):
    assert run(["--json", "buffer", "status"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert read_identity(store) is None
    log = store.begin("logs")
    log.close()
    assert run(["--json", "buffer", "status"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["buffer_id"] == read_identity(store)
    assert row["stream"].startswith(f"logs/{row['buffer_id']}-")


def test_status_shows_what_is_retained(store, capsys):
    log = store.begin("logs")
    log.close()
    BufferReader(store, dedup_seconds=0, retain_seconds=60).retire(log.stream, 1)
    assert run(["--json", "buffer", "status"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    [file] = store.files("retained")
    assert (row["segments"], row["retained_segments"]) == (0, 1)
    assert row["retained_bytes"] == file.size
    assert row["oldest_consumed_at"]
