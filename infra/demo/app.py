"""The server's routes: the page and its files, `POST /revise`, and what describes them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from remask.infra.demo.body import read_json
from remask.infra.demo.examples import Example
from remask.infra.demo.line import Check, Line, StoppedError
from remask.infra.demo.offers import Offers
from remask.infra.demo.openapi import describe
from remask.infra.demo.page import page_files
from remask.infra.demo.refusal import RefusedError
from remask.infra.demo.requests import read_request

CLIENT_GONE = 499
"""Status of an answer that nobody is there to read."""


def make_app(offers: Offers, examples: list[Example], line: Line) -> Starlette:
    """The application.

    Args:
        offers: The loaded models.
        examples: Starts that the page offers.
        line: Where decodes wait their turn.
    """

    async def post_revise(request: Request) -> Response:
        with line.place():
            values = await read_json(request)
            try:
                record = await _revise(values, offers, line, _watch(request))
            except ValueError as error:
                raise RefusedError(400, error) from error
            return JSONResponse(record)

    async def get_models(_: Request) -> Response:
        return JSONResponse(
            {
                "models": [asdict(model) for model in offers.models()],
                "missing": offers.missing(),
                "examples": [asdict(example) for example in examples],
            }
        )

    description = describe({example.title: example.request for example in examples})

    async def get_openapi(_: Request) -> Response:
        return JSONResponse(description)

    return Starlette(
        routes=[
            Route("/revise", post_revise, methods=["POST"]),
            Route("/models", get_models),
            Route("/openapi.json", get_openapi),
            *(Route(path, _serve(*file)) for path, file in page_files().items()),
        ],
        exception_handlers={
            RefusedError: _refused,
            HTTPException: _not_served,
            ClientDisconnect: _gone,
            StoppedError: _gone,
            Exception: _failed,
        },
    )


async def _revise(
    values: Mapping[str, Any], offers: Offers, line: Line, gone: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    asked = read_request(values)
    reviser = offers.find(asked.kind, asked.checkpoint)

    def work(check: Check) -> dict[str, Any]:
        start = reviser.start(asked.start())
        return reviser.revise(start, asked.options, watch=lambda _: check()).to_json()

    return await line.run(work, gone)


def _watch(request: Request) -> Callable[[], Awaitable[None]]:
    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return gone


def _serve(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def get(_: Request) -> Response:
        return Response(content, media_type=media_type)

    return get


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return error.response()


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        sentence = f"{request.url.path} does not take {request.method}"
    else:
        sentence = f"there is nothing at {request.url.path}; GET /openapi.json names what there is"
    return RefusedError(error.status_code, sentence, error.headers).response()


async def _gone(_: Request, error: Exception) -> Response:
    if isinstance(error, StoppedError):  # read only if the server itself is ending
        return RefusedError(503, "the server is ending").response()
    return Response(status_code=CLIENT_GONE)


async def _failed(_: Request, __: Exception) -> Response:
    return RefusedError(500, "the decode failed; the server's terminal says why").response()
