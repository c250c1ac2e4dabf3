"""What is served about a running process."""

import json
import urllib.error
import urllib.request

import pytest

from neve.errors import ConfigError
from neve.observe.http import Pages, serving


def get(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["content-type"], error.read()


def test_metrics_and_health_are_served_on_the_port_that_was_taken():
    trouble = [None]
    with serving("127.0.0.1:0", Pages(lambda: b"neve_x 1\n", lambda: trouble[0])) as address:
        assert address.port > 0
        status, content_type, body = get(address, "/metrics")
        assert (status, body) == (200, b"neve_x 1\n")
        assert content_type.startswith("text/plain; version=")
        assert get(address, "/readyz")[0] == 200
        trouble[0] = "the receiver is down"
        status, _, body = get(address, "/readyz")
        assert (status, json.loads(body)["reason"]) == (503, "the receiver is down")
        assert get(address, "/healthz")[0] == 200
        assert get(address, "/else")[0] == 404
    with pytest.raises(urllib.error.URLError):
        get(address, "/healthz")


def test_a_page_that_fails_is_logged_and_the_next_request_is_served(caplog, capfd):
    def fail():
        raise KeyError("a defect")

    with serving("127.0.0.1:0", Pages(fail, lambda: None)) as address:
        with pytest.raises(ConnectionError):
            get(address, "/metrics")
        assert get(address, "/readyz")[0] == 200
    assert "a request for metrics or health failed" in caplog.text
    # What the server of the standard library writes by itself.
    assert "Exception occurred during processing" not in capfd.readouterr().err


def test_nothing_is_served_unless_it_is_asked_for():
    with serving(None, Pages(bytes, str)) as address:
        assert address is None


def test_an_address_that_is_taken_is_named():
    with (
        serving("127.0.0.1:0", Pages(bytes, str)) as address,
        pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1"),
        serving(str(address), Pages(bytes, str)),
    ):
        pass
