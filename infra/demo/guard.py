"""Who may use the server: pages that it served itself, and programs on this machine.

A web page elsewhere can send requests to this server from its reader's browser. It cannot forge two
headers: `Host`, which names the page's own domain even if that name is made to resolve to this
machine, and `Origin`, which a browser adds to requests across sites. Programs send no `Origin`.
"""

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from remask.infra.demo.refusal import RefusedError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Headers of every answer: the page may load, run and send to nothing but this server."""


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets requests through that come from the server's own pages or from programs."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        """
        Args:
            app: What answers the requests that are let through.
            host: The address or name that the server listens on.
        """
        self.app = app
        self.names = {*LOOPBACK, host.lower()}
        self.takes_addresses = not is_loopback(host)
        """Whether any IP address is accepted as `Host`: no domain can resolve to another name."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            self.check(Headers(scope=scope))
        except RefusedError as refusal:
            await refusal.response()(scope, receive, send_with_headers)
            return
        await self.app(scope, receive, send_with_headers)

    def check(self, headers: Headers) -> None:
        """Raise RefusedError unless both headers name this server."""
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if not self._is_own(_name_of(host)):
            raise RefusedError(
                403, f"this server does not answer for the host {host!r}; use its own address"
            )
        for origin in headers.getlist("origin"):
            if origin.lower() not in (f"http://{host}", f"https://{host}"):
                raise RefusedError(
                    403, f"pages of {origin} may not use this server; open its own page"
                )

    def _is_own(self, name: str) -> bool:
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.takes_addresses


def _name_of(host: str) -> str:
    """The name in a `Host` header, without the port; empty if it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises ValueError if it is no number
    except ValueError:
        return ""
    is_plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    return (parts.hostname or "") if is_plain else ""
