"""Many requests at once, a full line, and clients that go away."""

import asyncio
import json
import socket
import time

import httpx
import pytest

from remask.infra.demo import body
from remask.infra.demo.body import MAX_BYTES, read_body
from remask.infra.demo.offers import Offers
from remask.infra.demo.refusal import RefusedError
from tests.infra.demo.servers import BOARD, Gate, HeldReviser, run_server

SUDOKU = {"kind": "sudoku", "board": BOARD}


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()


def send_revise(port, request=SUDOKU):
    """A connection on which a request was sent, and no answer read."""
    client = socket.create_connection(("127.0.0.1", port))
    body = json.dumps(request).encode()
    head = f"POST /revise HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return client


def wait_until(is_so, timeout_s=30):
    """Return once something is so, which no event tells."""
    end = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_fifty_requests_at_once_are_all_answered(running):
    small = {"kind": "text", "prompt": "abc", "draft": "hello", "options": {"max_steps": 3}}

    async def ask():
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:
            requests = [SUDOKU if i % 2 else small for i in range(50)]
            return await asyncio.gather(
                *(client.post(f"{running.address}/revise", json=x) for x in requests)
            )

    answers = asyncio.run(ask())
    assert [answer.status_code for answer in answers] == [200] * 50
    assert len({answer.text for answer in answers}) == 2
    assert running.server.line.taken == 0


def test_a_full_line_says_so_and_the_page_still_loads(gate):
    with run_server(Offers({"sudoku": HeldReviser(gate)}), places=2) as running:
        clients = [send_revise(running.port) for _ in range(2)]
        wait_until(lambda: running.server.line.taken == 2)
        answer = httpx.post(f"{running.address}/revise", json=SUDOKU)
        assert answer.status_code == 503
        assert answer.json()["error"].startswith("2 requests are waiting already")
        assert answer.headers["retry-after"] == "1"
        assert httpx.get(running.address).status_code == 200
        gate.opened.set()
        for client in clients:
            with client:
                assert client.recv(12) == b"HTTP/1.1 200"


def test_a_client_that_goes_away_frees_its_place(gate):
    with run_server(Offers({"sudoku": HeldReviser(gate)}), places=2) as running:
        decoding = send_revise(running.port)
        gate.begun.wait()
        waiting = send_revise(running.port)
        wait_until(lambda: running.server.line.taken == 2)
        waiting.close()  # its turn has not come: its place is free at once
        wait_until(lambda: running.server.line.taken == 1)
        decoding.close()
        steps = gate.steps
        # The server must have seen the end of the connection before the decode goes on.
        wait_until(lambda: not running.server.server_state.connections)
        gate.opened.set()
        wait_until(lambda: running.server.line.taken == 0)
        assert gate.steps == steps  # it stopped before its next step
        assert gate.decodes == 1
        assert httpx.post(f"{running.address}/revise", json=SUDOKU).status_code == 200


def test_a_server_that_ends_stops_its_decodes(gate):
    with run_server(Offers({"sudoku": HeldReviser(gate)})) as running:
        client = send_revise(running.port)
        gate.begun.wait()
        running.server.line.close()
        gate.opened.set()
        with client:
            assert client.recv(12) == b"HTTP/1.1 503"
    assert gate.steps == 1


class Endless:
    """A request whose body never ends, in pieces of 64 KB."""

    headers = httpx.Headers()

    def __init__(self):
        self.received = 0

    async def receive(self):
        self.received += 1 << 16
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b" " * (1 << 16), "more_body": True}

    async def stream(self):
        while True:
            yield (await self.receive())["body"]


def test_an_endless_body_is_dropped_as_it_arrives(monkeypatch):
    import tracemalloc

    monkeypatch.setattr(body, "DRAIN_S", 0.05)
    request = Endless()
    tracemalloc.start()
    with pytest.raises(RefusedError, match="larger than the limit"):
        asyncio.run(read_body(request))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert request.received > 2 * MAX_BYTES
    assert peak < 2 * MAX_BYTES


def test_a_body_that_does_not_arrive_is_given_up(running, monkeypatch):
    monkeypatch.setattr(body, "TIMEOUT_S", 0.05)
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        client.sendall(
            b"POST /revise HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within" in answer
