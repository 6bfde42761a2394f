"""The reserved port of a program: no other program gets it, and the program can listen on it."""

import socket

import pytest

from mininet_topos.controller_process import reserve_port


def test_a_reserved_port_is_refused_to_others_and_served_by_its_program() -> None:
    port = reserve_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    for _ in range(2):  # a restarted program gets it again
        with socket.create_server(("127.0.0.1", port)) as server:
            socket.create_connection(server.getsockname()).close()
            server.accept()[0].close()
