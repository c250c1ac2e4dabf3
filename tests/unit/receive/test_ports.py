"""Ports of one process, and ports that workers share."""

import socket

import pytest

from neve.config.address import Address
from neve.errors import ConfigError
from neve.receive.ports import listen, reserve

ANY = Address("127.0.0.1", 0)


def address_of(bound):
    return Address("127.0.0.1", bound.getsockname()[1])


def test_a_port_is_listened_on_by_one_process_unless_it_is_shared():
    with listen(ANY, share_port=False) as first:
        for share_port in (False, True):
            with pytest.raises(ConfigError, match=rf"cannot listen on {address_of(first)}"):
                listen(address_of(first), share_port=share_port)


def test_workers_share_a_reserved_port_and_nobody_else_gets_it():
    with reserve(ANY) as held:
        address = address_of(held)
        assert address.port
        # It holds the port without listening: nobody would answer.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port))
        with listen(address, share_port=True), listen(address, share_port=True):
            socket.create_connection((address.host, address.port)).close()
            with pytest.raises(ConfigError, match="cannot listen"):
                reserve(address)
            with pytest.raises(ConfigError, match="cannot listen"):
                listen(address, share_port=False)


def test_a_reserved_port_can_be_reserved_again_once_nobody_listens():
    with reserve(ANY) as held:
        address = address_of(held)
    with reserve(address) as again:
        assert address_of(again) == address


def test_an_address_of_another_machine_is_named():
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:4318"):
        reserve(Address("192.0.2.1", 4318))
