"""The demo's server as it really runs, on a port of its own, in a thread."""

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

from remask.infra.demo.offers import Offers
from remask.infra.demo.serve import DemoServer, address_of, listen
from remask.infra.reviser import Reviser, open_reviser

BOARD = "314698765928758943576134281576382976697541329672964514165423897343479151789615432"
"""With 14 wrong digits."""


@dataclass
class Running:
    """A server that answers."""

    server: DemoServer
    address: str
    port: int


@contextmanager
def run_server(offers: Offers, places: int | None = None):
    """Serve until the block is left; in the end the line must be empty."""
    with listen("127.0.0.1", 0) as listener:
        server = DemoServer(offers, "127.0.0.1")
        if places is not None:
            server.line.places = places
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Running(server, address_of(listener), listener.getsockname()[1])
        finally:
            server.line.close()
            server.should_exit = True
            thread.join()
            server.line.wait()
        assert server.line.taken == 0


@dataclass
class Gate:
    """Holds decodes at each step until it is opened."""

    begun: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    decodes: int = 0
    steps: int = 0


class HeldReviser(Reviser):
    """The packaged Sudoku model, whose decodes wait at a gate before every step."""

    def __init__(self, gate: Gate) -> None:
        whole = open_reviser("sudoku")
        super().__init__(whole.name, whole.backbone, whole.reader, whole.tuned)
        self.gate = gate

    def revise(self, start, options=None, watch=None):
        self.gate.decodes += 1

        def held(step):
            self.gate.steps += 1
            self.gate.begun.set()
            self.gate.opened.wait()
            if watch is not None:
                watch(step)

        return super().revise(start, options, held)
