"""The server's description of itself, as OpenAPI 3.1.

Requests and answers are described by the dataclasses that check and make them (`schema.py`); the
examples are the page's own.
"""

from collections.abc import Mapping
from typing import Any

from remask.infra.demo.body import MAX_BYTES
from remask.infra.demo.offers import Model
from remask.infra.demo.requests import KINDS
from remask.infra.demo.schema import schema_of
from remask.infra.record import Record

VERSION = "1"
REFUSALS = {
    "400": "The request is wrong: no JSON, an unknown key, a value out of its range, a bad board.",
    "403": "The request names another host, or comes from a page elsewhere.",
    "404": "No model of that kind has the name.",
    "408": "The body did not arrive in time.",
    "409": "There is no model of that kind.",
    "413": f"The body is larger than {MAX_BYTES:,} bytes.",
    "415": "The body is not application/json.",
    "500": "The decode failed; the server's terminal says why.",
    "503": "Too many requests are waiting, or the server is ending.",
}
"""What each status of an error means; every one has a sentence as JSON."""


def describe(examples: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The OpenAPI document.

    Args:
        examples: Requests that the loaded models answer, by title.
    """
    components = {request.__name__: schema_of(request) for request in KINDS.values()}
    components |= {"Record": schema_of(Record), "Model": schema_of(Model), "Error": _ERROR}
    names = {kind: _reference(request.__name__) for kind, request in KINDS.items()}
    body = {
        "oneOf": [{"$ref": name} for name in names.values()],
        "discriminator": {"propertyName": "kind", "mapping": names},
    }
    revise = {
        "operationId": "revise",
        "summary": "Revise a board, a text or a picture, and return every step",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": body,
                    "examples": {title: {"value": dict(x)} for title, x in examples.items()},
                }
            },
        },
        "responses": {
            "200": _answer("The decode.", {"$ref": _reference("Record")}),
            **{
                status: _answer(text, {"$ref": _reference("Error")})
                for status, text in REFUSALS.items()
            },
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "remask demo",
            "version": VERSION,
            "description": "Mask diffusion models that revise their own output, on this machine.",
        },
        "paths": {
            "/revise": {"post": revise},
            "/models": {"get": _get("models", "The models that can be asked for", _MODELS)},
            "/openapi.json": {"get": _get("openapi", "This description", {"type": "object"})},
        },
        "components": {"schemas": components},
    }


def _reference(name: str) -> str:
    return f"#/components/schemas/{name}"


def _answer(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": dict(schema)}}}


def _get(operation: str, summary: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operationId": operation,
        "summary": summary,
        "responses": {"200": _answer(f"{summary}.", schema)},
    }


_ERROR = {
    "type": "object",
    "description": "Why a request was not carried out.",
    "properties": {"error": {"type": "string", "description": "One sentence."}},
    "required": ["error"],
    "additionalProperties": False,
}
_MODELS = {
    "type": "object",
    "properties": {
        "models": {"type": "array", "items": {"$ref": _reference("Model")}},
        "missing": {
            "type": "object",
            "description": "A sentence for each kind without a model.",
            "additionalProperties": {"type": "string"},
        },
        "examples": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["models", "missing", "examples"],
    "additionalProperties": False,
}
