"""A page to play with: type a start, press Revise, and watch a model correct it step by step.

The page offers the models that come with the package and those of --checkpoint, each with its kind
of input: Sudoku boards, text or pictures. Two decoders can be compared side by side. Everything
runs on this machine: the page loads nothing from the network and sends nothing to it.

    remask demo
    remask demo --checkpoint sums=runs/sums/own-0/model --checkpoint llada=weights/llada-8b-instruct
    remask demo --port 9000

Programs can use the same server; GET /openapi.json describes it:

    curl -H 'Content-Type: application/json' http://127.0.0.1:8321/revise \\
        -d '{"kind": "sudoku", "board": "…81 digits…"}'

The server listens on this machine alone. From another one, use a tunnel: `ssh -L
8321:127.0.0.1:8321 HOST`, then open http://127.0.0.1:8321 there. Ctrl-C ends it.
"""

import argparse
import errno
import socket
from types import FrameType

import uvicorn

from remask.infra.demo.app import make_app
from remask.infra.demo.examples import find_examples
from remask.infra.demo.guard import Guard, is_loopback
from remask.infra.demo.line import Line
from remask.infra.demo.offers import Offers, open_offers
from remask.models import CheckpointError
from remask.pipeline.runtime.storage import StorageError
from remask.pipeline.runtime.terminal import complain, fail, say

PORT = 8321
GRACE_S = 3
"""Time for answers in hand when the server ends."""
BACKLOG = 256
"""Connections that may wait to be accepted."""


class DemoServer(uvicorn.Server):
    """Lets decodes stop as soon as a signal asks the server to end."""

    def __init__(self, offers: Offers, host: str) -> None:
        self.line = Line()
        app = make_app(offers, find_examples(offers.models()), self.line)
        super().__init__(
            uvicorn.Config(
                Guard(app, host),
                http="h11",
                ws="none",
                access_log=False,
                log_level="warning",
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.line.close()
        super().handle_exit(sig, frame)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="remask demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0 takes any")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a model to offer, under a name; may be given several times",
    )
    arguments = parser.parse_args(argv)
    try:
        if not 0 <= arguments.port < 1 << 16:
            raise ValueError(f"--port must lie in [0, 65535], got {arguments.port}")
        folders = read_checkpoints(arguments.checkpoint)
        listener = listen(arguments.host, arguments.port)
    except ValueError as error:
        fail("remask demo", 2, error)
    except OSError as error:
        fail("remask demo", 1, _why(error, arguments))
    with listener:
        try:
            offers = open_offers(folders)
        except (CheckpointError, ValueError) as error:
            fail("remask demo", 2, error)
        except StorageError as error:
            fail("remask demo", 1, error)
        server = DemoServer(offers, arguments.host)
        if not is_loopback(arguments.host):
            complain(
                "remask demo",
                f"{arguments.host} is no loopback address: whoever reaches this machine can use "
                "the server, which asks for no password",
            )
        say(f"remask demo: open {address_of(listener)} (Ctrl-C ends)")
        try:
            server.run(sockets=[listener])
        finally:
            server.line.close()
            server.line.wait()


def read_checkpoints(values: list[str]) -> dict[str, str]:
    """Folders by name, from NAME=FOLDER each."""
    folders: dict[str, str] = {}
    for value in values:
        name, equals, folder = value.partition("=")
        if not (equals and name.strip() and folder):
            raise ValueError(f"--checkpoint must be NAME=FOLDER, got {value!r}")
        if name in folders:
            raise ValueError(f"--checkpoint has two models of the name {name!r}; choose another")
        folders[name] = folder
    return folders


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises ValueError if the host is none of this machine's addresses."""
    try:
        ((family, *_, address), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise ValueError(f"--host {host!r} is no address: {error.strerror}") from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ValueError(f"--host {host} is no address of this machine") from error
        raise


def address_of(listener: socket.socket) -> str:
    """Where a browser on this machine finds the page."""
    bound, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound, str(bound))
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _why(error: OSError, arguments: argparse.Namespace) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {arguments.port} is in use; choose another with --port, or 0 for any"
    return f"cannot listen on port {arguments.port} of {arguments.host}: {error.strerror}"


if __name__ == "__main__":
    main()
