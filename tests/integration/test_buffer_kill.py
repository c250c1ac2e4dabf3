"""Real processes, really killed, at every step of the buffer."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys

import pytest

from neve import failpoints
from neve.buffer.buffer import open_store
from neve.buffer.dead_letters import list_dead_letters
from neve.buffer.spec import BufferSpec, ObjectStorage
from tests.support.buffer_stores import payloads
from tests.support.dead_letters import set_one_aside, stored
from tests.support.servers import REGION

WRITING = {
    "disk": [
        "buffer.named",
        "buffer.created",
        "buffer.torn",
        "buffer.written",
        "buffer.synced",
        "buffer.renamed",
        "buffer.sealed",
        "buffer.closed",
    ],
    "objects": ["buffer.put_begun", "buffer.put_done"],
}
ELSEWHERE = {
    "buffer.recovered": "test_a_kill_while_recovering",
    "buffer.settled": "tests/unit/buffer/test_objects.py",
    "buffer.retire_declared": "tests/unit/buffer/test_disk.py",
    "buffer.retire_removed": "tests/unit/buffer/test_disk.py",
    "buffer.drop_noted": "tests/unit/buffer/test_identity.py",
}
CONTENTS = [f"request {n}" for n in range(6)]


@pytest.fixture
def spec(request, tmp_path):
    if request.param == "disk":
        # Every group seals its segment, so that each step is passed several times.
        return BufferSpec(location=str(tmp_path), seal_bytes=1)
    server = request.getfixturevalue("s3")
    return BufferSpec(
        location=f"s3://{server.bucket}/{tmp_path.name}",
        storage=ObjectStorage(server.endpoint, REGION, server.access_key, server.secret_key),
        put_interval_seconds=0,
    )


def run(spec: BufferSpec, contents: list[str], failpoint: str = "") -> tuple[list[str], int]:
    """Append in a process that may be killed; return what it acknowledged, and its status."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.appender", json.dumps(dataclasses.asdict(spec))],
        input="".join(f"{content}\n" for content in contents),
        env={**os.environ, failpoints.ENVIRONMENT_VARIABLE: failpoint},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout.split("\n")[:-1], done.returncode


@pytest.mark.parametrize(
    ("spec", "point"),
    [(store, point) for store, points in WRITING.items() for point in points],
    indirect=["spec"],
)
def test_each_request_is_stored_once_after_a_kill_and_a_retry(spec, point):
    once = point in ("buffer.named", "buffer.closed")
    acknowledged, status = run(spec, CONTENTS, point if once else f"{point}@2")
    assert status == -signal.SIGKILL
    # The client sends everything again that it had no answer for.
    rest = [content for content in CONTENTS if content not in acknowledged]
    assert run(spec, rest) == (rest, 0)
    found = [payload.decode() for payload in payloads(open_store(spec))]
    assert sorted(found) == CONTENTS


@pytest.mark.parametrize("spec", ["disk"], indirect=True)
def test_a_kill_while_recovering(spec):
    acknowledged, _ = run(spec, CONTENTS, "buffer.written@3")
    assert run(spec, [], "buffer.recovered") == ([], -signal.SIGKILL)
    rest = [content for content in CONTENTS if content not in acknowledged]
    assert run(spec, rest) == (rest, 0)
    assert sorted(payload.decode() for payload in payloads(open_store(spec))) == CONTENTS


REPLAYING = ["replay.intended", "replay.put", "replay.closed", "replay.removed"]


@pytest.mark.parametrize("point", REPLAYING)
def test_a_replay_that_is_killed_is_finished_by_the_next(tmp_path, point):
    store = open_store(BufferSpec(location=str(tmp_path)))
    set_one_aside(store, "a")
    command = [sys.executable, "-m", "neve", "buffer", "dead-letters", "replay", "--all"]
    environment = {**os.environ, "NEVE_BUFFER__LOCATION": str(tmp_path)}
    cut = {**environment, failpoints.ENVIRONMENT_VARIABLE: point}
    killed = subprocess.run(command, env=cut, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    for _ in range(2):
        subprocess.run(command, env=environment, capture_output=True, check=True)
    assert stored(store) == ["a 1"]
    assert list_dead_letters(store) == []


def test_every_failpoint_of_a_replay_is_tried():
    assert set(REPLAYING) == {name for name in failpoints.POINTS if name.startswith("replay.")}


def test_every_failpoint_of_the_buffer_is_tried():
    tried = {point for points in WRITING.values() for point in points} | set(ELSEWHERE)
    assert tried == {name for name in failpoints.POINTS if name.startswith("buffer.")}
