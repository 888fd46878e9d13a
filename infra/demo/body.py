"""Reading a request's body without holding more of it than is allowed."""

import asyncio
import json
from typing import Any, NoReturn

from starlette.requests import Request

from remask.infra.demo.refusal import RefusedError

MAX_BYTES = 2 << 20
"""Limit on a request's body. A picture of 512 × 512 pixels fits in base64."""
TIMEOUT_S = 20.0
"""Time within which a body must have arrived."""
DRAIN_S = 5.0
"""Time for which the rest of a body that is too large is read and dropped. A browser that is still
sending would otherwise see a broken connection instead of the answer."""


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object in a request's body.

    Raises RefusedError if it is too large, too slow or no JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(
            415, f"the body must be application/json, got {kind or 'no content type'}"
        )
    return _parse(await read_body(request))


async def read_body(request: Request, limit: int = MAX_BYTES) -> bytes:
    """A request's body of at most `limit` bytes.

    Raises RefusedError if the body is larger: by what `Content-Length` says before reading any of
    it, else by what has arrived. Raises ClientDisconnect if the client goes away.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        await _refuse_large(request, limit)
    body = bytearray()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limit:
                    body.clear()
                    await _refuse_large(request, limit)
                body += chunk
    except TimeoutError:
        raise RefusedError(
            408, f"the body did not arrive within {TIMEOUT_S:g} s", {"Connection": "close"}
        ) from None
    return bytes(body)


async def _refuse_large(request: Request, limit: int) -> NoReturn:
    if "expect" not in request.headers:  # such a client waits for leave to send
        await _drain(request)
    raise RefusedError(
        413,
        f"the body is larger than the limit of {limit:,} bytes; send a smaller picture or text",
        {"Connection": "close"},
    )


async def _drain(request: Request) -> None:
    try:
        async with asyncio.timeout(DRAIN_S):
            while (message := await request.receive())["type"] == "http.request":
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"the body is not UTF-8: byte {error.start} is wrong") from None
    except RecursionError:
        raise RefusedError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RefusedError(400, f"the body must be a JSON object, got a {type(value).__name__}")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
