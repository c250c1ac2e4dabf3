from __future__ import annotations

from neve.receive.http_connection import END_OF_HEAD, without_upgrade


def stripped(header: bytes, body: bytes = b"") -> bytes:
    data = header + END_OF_HEAD + body
    return without_upgrade(data, len(header))


def test_the_offer_to_change_protocols_is_taken_out():
    header = b"POST / HTTP/1.1\r\nHost: h\r\nUPGRADE : h2c\r\nConnection: Upgrade"
    expected = b"POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\r\nbody"
    assert stripped(header, b"body") == expected


def test_nothing_else_is():
    header = b"POST /upgrade HTTP/1.1\r\nX-Upgrade: yes\r\nUpgrade-Insecure-Requests: 1"
    body = b"\r\nUpgrade: h2c\r\n"
    assert stripped(header, body) == header + END_OF_HEAD + body
