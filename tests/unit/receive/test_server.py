"""A receiver ends as a whole when one of its threads or clocks has ended."""

import threading
from functools import partial

import pytest

from neve.buffer.spec import BufferSpec
from neve.errors import InternalError
from neve.receive import http_server, server
from neve.receive.spec import ReceiveSpec


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.01)
    spec = ReceiveSpec(http="127.0.0.1:0", grpc="127.0.0.1:0")
    return partial(server.serve, spec, BufferSpec(str(tmp_path / "buffer")))


async def fail(*_):
    raise KeyError("a defect")


def test_a_clock_that_ends_ends_the_receiver(serve, monkeypatch):
    monkeypatch.setattr(http_server, "keep_ticking", fail)
    with pytest.raises(InternalError, match=r"clock of HttpServer ended unexpectedly.*KeyError"):
        serve()


def test_a_thread_that_ends_ends_the_receiver_but_not_one_of_an_agent(serve, monkeypatch, caplog):
    left_alone = []
    monkeypatch.setattr(threading, "excepthook", lambda ended: left_alone.append(ended.thread.name))

    def start_threads(_receiver):
        for name in ("agent", "neve-odd"):
            thread = threading.Thread(target={}.__getitem__, args=["a defect"], name=name)
            thread.start()
            thread.join()

    with pytest.raises(InternalError, match="the thread neve-odd ended unexpectedly") as raised:
        serve(on_ready=start_threads)
    assert raised.value.exit_status == 1
    assert left_alone == ["agent"]
    assert "KeyError" in caplog.text
