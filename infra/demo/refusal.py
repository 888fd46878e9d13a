"""A request that the server does not carry out, with its HTTP status and one sentence."""

from collections.abc import Mapping

from starlette.responses import JSONResponse

from remask.pipeline.runtime.terminal import one_line

MAX_CHARACTERS = 400
"""Limit on the length of a sentence, since it may quote what was sent."""


class RefusedError(Exception):
    """Raised by whatever finds out that a request cannot be carried out."""

    def __init__(
        self, status: int, sentence: object, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(str(sentence))
        self.status = status
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        text = one_line(self)
        if len(text) > MAX_CHARACTERS:
            text = f"{text[: MAX_CHARACTERS // 2]} … {text[-MAX_CHARACTERS // 2 :]}"
        return JSONResponse({"error": text}, self.status, self.headers)
