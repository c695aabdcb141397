"""The OpenAPI description of the routes, with every limit in its schema."""

from __future__ import annotations

from typing import Any

from openjev.contract import Limits

_TEXT = {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]}
_TEXT_OR_NULL = {"anyOf": [*_TEXT["anyOf"], {"type": "null"}]}
_PROBABILITY = {"type": "number", "minimum": 0, "maximum": 1}
_PROBABILITIES = {"type": "object", "additionalProperties": _PROBABILITY}

_ERRORS = {
    "400": "unknown model, images, or a body that does not match its Content-Encoding",
    "401": "no key, or one that is not accepted",
    "403": "a page of an origin that is not allowed",
    "408": "the body took too long",
    "413": "the body is too large",
    "415": "the content type or content encoding is not supported",
    "422": "the request does not follow the contract, or a prompt is longer than the model takes",
    "500": "the model failed",
    "503": "the model is loading, has failed to load, or the server is stopping",
    "504": "the request waited and ran longer than the server allows",
    "529": "the queue is full",
}


def describe(version: str, limits: Limits, *, max_body_bytes: int, authenticated: bool) -> dict[str, Any]:
    """The document of `GET /openapi.json`. `max_body_bytes` counts bytes after decompression."""
    decide = {
        "operationId": "systemone",
        "summary": "Answer typed questions about a state",
        "requestBody": {
            "required": True,
            "description": (
                f"At most {max_body_bytes} bytes after decompression, nested at most {limits.depth} deep, "
                f"with at most {limits.candidates} options and levels in all. Content-Encoding: identity, "
                "gzip, deflate or zstd."
            ),
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Request"}}},
        },
        "responses": {
            "200": _json("the answers", "Response"),
            **{code: _json(text, _error(code)) for code, text in _ERRORS.items()},
        },
    }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "openjev", "version": version, "description": "System One decisions."},
        "paths": {
            "/v1/systemone": {"post": decide},
            "/v1/inference": {
                "post": {**decide, "operationId": "inference", "summary": "Same as /v1/systemone"}
            },
            "/v1/models": {"get": _get("models", "Names that `model` may have", "Models", "503")},
            "/health": {"get": _get("health", "Whether decisions are answered", "Health", "503")},
            "/metrics": {"get": _get_text("metrics", "Counters in the Prometheus text format")},
            "/openapi.json": {"get": _get("openapi", "This document", None)},
        },
        "components": {"schemas": {**_request(limits), **_response(), **_error_schemas()}},
    }
    if authenticated:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        for path in ("/v1/systemone", "/v1/inference", "/v1/models"):
            for operation in document["paths"][path].values():
                operation["security"] = [{"bearer": []}]
    return document


def _error(code: str) -> str:
    return "InvalidRequest" if code == "422" else "Error"


def _json(description: str, schema: str | None) -> dict[str, Any]:
    content = {"schema": {"$ref": f"#/components/schemas/{schema}"} if schema else {"type": "object"}}
    return {"description": description, "content": {"application/json": content}}


def _get(operation: str, summary: str, schema: str | None, *other: str) -> dict[str, Any]:
    answers = {code: _json(summary, schema) for code in ("200", *other)}
    return {"operationId": operation, "summary": summary, "responses": answers}


def _get_text(operation: str, summary: str) -> dict[str, Any]:
    answer = {"description": summary, "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {"operationId": operation, "summary": summary, "responses": {"200": answer}}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _request(limits: Limits) -> dict[str, Any]:
    outcomes = {"type": ["object", "null"], "properties": {"true": _TEXT_OR_NULL, "false": _TEXT_OR_NULL}}
    options = {
        "type": "object",
        "additionalProperties": _TEXT_OR_NULL,
        "minProperties": 1,
        "maxProperties": limits.options,
        "description": "option name to its description; null leaves the name to speak for itself",
    }
    levels = {
        "type": "array",
        "items": _TEXT,
        "minItems": 1,
        "maxItems": limits.levels,
        "description": "levels from low to high",
    }

    def question(kind: str, criteria: dict[str, Any], required: list[str]) -> dict[str, Any]:
        fields = {"type": {"const": kind}, "instructions": _TEXT_OR_NULL, "criteria": criteria}
        return _object(fields, ["type", *required])

    return {
        "Request": _object(
            {
                "model": {"type": ["string", "null"], "description": "a name of /v1/models; absent: any"},
                "state": _TEXT,
                "questions": {
                    "type": "object",
                    "additionalProperties": {"$ref": "#/components/schemas/Question"},
                    "propertyNames": {"minLength": 1},
                    "minProperties": 1,
                    "maxProperties": limits.questions,
                },
            },
            ["state", "questions"],
        ),
        "Question": {
            "oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("Noul", "Choice", "Score")],
        },
        "Noul": question("noul", outcomes, []),
        "Choice": question("choice", options, ["criteria"]),
        "Score": question("score", levels, ["criteria"]),
    }


def _response() -> dict[str, Any]:
    usage = {name: {"type": "integer", "minimum": 0} for name in ("input_tokens", "output_tokens")}
    choice = {
        "type": {"const": "choice"},
        "choice": {"type": "string"},
        "probabilities": _PROBABILITIES,
        "confidence": _PROBABILITY,
    }
    score = {
        "type": {"const": "score"},
        "score": {"type": "number", "minimum": 0},
        "legend": {"type": "object", "additionalProperties": _TEXT},
        "probabilities": _PROBABILITIES,
        "confidence": _PROBABILITY,
    }
    noul = {"type": {"const": "noul"}, "noul": _PROBABILITY}
    model = {key: {"type": "string"} for key in ("name", "description", "release_date")}
    return {
        "Response": _object(
            {
                "model": {"type": "string"},
                "answers": {
                    "type": "object",
                    "additionalProperties": {"$ref": "#/components/schemas/Answer"},
                },
                "usage": _object(usage, list(usage)),
                "x_openjev": {"type": "object", "description": "which checkpoint answered, and how"},
            },
            ["model", "answers", "usage"],
        ),
        "Answer": {"oneOf": [_object(fields, list(fields)) for fields in (noul, choice, score)]},
        "Models": _object({"models": {"type": "array", "items": _object(model, list(model))}}, ["models"]),
        "Health": _object(
            {
                "status": {"enum": ["loading", "ready", "failed", "draining"]},
                "model": {"type": "string"},
                "device": {"type": "string"},
                "reason": {"type": "string"},
            },
            ["status"],
        ),
    }


def _error_schemas() -> dict[str, Any]:
    text = {"type": "string"}
    issue = {
        "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
        "msg": text,
        "type": text,
        "input": {},
        "ctx": {"type": "object"},
    }
    detail = _object({"error_type": text, "message": text}, ["error_type", "message"])
    issues = {"type": "array", "items": _object(issue, ["loc", "msg", "type"])}
    return {
        "Error": _object({"detail": detail}, ["detail"]),
        "InvalidRequest": _object({"detail": issues}, ["detail"]),
    }
