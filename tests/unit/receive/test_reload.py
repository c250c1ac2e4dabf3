"""When files are read again, one look after the other."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from neve.config import load
from neve.errors import ConfigError
from neve.receive.reload import Reloader, ReloadSource
from neve.receive.spec import receive_spec

TOKEN = "a-token-of-the-test-{}"


class Receiver:
    """Remembers what it was told to use."""

    def __init__(self, spec):
        self.spec = spec
        self.used = []
        self.problem = None

    def use_credentials(self, spec):
        if self.problem:
            raise self.problem
        self.spec = spec
        self.used.append([token.token for token in spec.tokens])


def write(number, more=""):
    Path("neve.yaml").write_text(f"receive: {{tokens: [{TOKEN.format(number)}]}}\n{more}")


@pytest.fixture
def receiver():
    write(1)
    return Receiver(receive_spec(load().settings))


@pytest.fixture
def reloader(receiver):
    return Reloader(receiver, ReloadSource(load(), load))


def looks(reloader, count=1):
    async def look():
        for _ in range(count):
            await reloader.look()

    asyncio.run(look())


def test_what_changed_before_the_first_look_is_used(reloader, receiver):
    write(2)
    looks(reloader, 2)
    assert receiver.used == [[TOKEN.format(2)]]


def test_a_file_is_read_when_it_has_stayed_the_same_for_one_look(reloader, receiver):
    looks(reloader, 5)
    assert receiver.used == [[TOKEN.format(1)]], "once, however often it was looked at"
    for number in (20, 300, 4000):
        write(number)
        looks(reloader)
    assert len(receiver.used) == 1, "it may still be being written"
    looks(reloader, 3)
    assert receiver.used[1:] == [[TOKEN.format(4000)]]


def test_a_file_of_the_same_size_and_time_that_was_put_in_its_place_is_noticed(reloader, receiver):
    looks(reloader, 2)
    status = Path("neve.yaml").stat()
    Path("neve.yaml").rename("kept")
    write(2)
    os.utime("neve.yaml", ns=(status.st_atime_ns, status.st_mtime_ns))
    looks(reloader, 2)
    assert receiver.used[-1] == [TOKEN.format(2)]


def test_a_file_that_is_written_while_it_is_read_is_read_again(receiver):
    contents = [22, 333]

    def load_slowly():
        loaded = load()
        if contents:
            write(contents.pop(0))
        return loaded

    reloader = Reloader(receiver, ReloadSource(load(), load_slowly))
    reloader.asked.set()
    looks(reloader, 3)
    assert (contents, receiver.used) == ([], [])
    looks(reloader, 2)
    assert receiver.used == [[TOKEN.format(333)]]


def test_being_asked_reads_at_once(reloader, receiver):
    write(2)
    reloader.asked.set()
    looks(reloader)
    assert receiver.used == [[TOKEN.format(2)]]
    assert not reloader.asked.is_set()


def test_what_cannot_be_used_is_said_once_and_tried_again_when_it_changes(
    reloader, receiver, caplog
):
    receiver.problem = ConfigError("no such certificate")
    looks(reloader, 5)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "no such certificate" in caplog.text
    receiver.problem = None
    write(22)
    looks(reloader, 2)
    assert receiver.used == [[TOKEN.format(22)]]


def test_certificates_that_the_new_file_names_are_watched(reloader, receiver):
    Path("neve.yaml").write_text(
        f"receive: {{tokens: [{TOKEN.format(1)}], tls: {{cert: new.pem, key: new.key}}}}\n"
    )
    receiver.problem = ConfigError("new.pem is missing")
    looks(reloader, 2)
    receiver.problem = None
    Path("new.pem").write_text("certificate")
    looks(reloader, 2)
    assert receiver.used == [[TOKEN.format(1)]]


def test_a_rate_is_shared_by_the_workers_there_are(reloader, receiver, caplog):
    entry = f"{{token: {TOKEN.format(1)}, max_bytes_per_second: 1000}}"
    Path("neve.yaml").write_text(f"receive: {{workers: 4, tokens: [{entry}]}}")
    looks(reloader, 2)
    assert receiver.spec.tokens[0].max_bytes_per_second == 1000
    assert "a change of receive.workers needs a restart" in caplog.text


def test_changes_that_need_a_restart_are_named_without_their_values(reloader, receiver, caplog):
    write(2, "project: other-name\nstorage: {region: other-region}\n")
    looks(reloader, 2)
    assert "a change of project, storage.region needs a restart" in caplog.text
    assert "other" not in caplog.text
    assert TOKEN.format(2) not in caplog.text
    assert receiver.used == [[TOKEN.format(2)]]
