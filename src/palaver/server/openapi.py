"""The OpenAPI document: adds what FastAPI cannot know, and rewrites what client generators cannot handle."""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi import FastAPI

from palaver.server.compat import schemas as foreign
from palaver.server.operations import COMPAT_OPERATIONS, REST_OPERATIONS
from palaver.server.rest import schemas

REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


def complete_openapi(app: FastAPI) -> None:
    """Add the schemas of responses and the security scheme to the OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        parts = document.setdefault("components", {})
        known = parts.setdefault("schemas", {})
        for operation in (*REST_OPERATIONS, *COMPAT_OPERATIONS):
            for model in filter(None, (operation.answer, operation.body)):
                _add_schema(known, model)
        for model in (schemas.Problem, schemas.ServerSentEvent, foreign.OpenAIError, foreign.AnthropicError):
            _add_schema(known, model)
        for name in ("HTTPValidationError", "ValidationError"):
            known.pop(name, None)
        for described in (one for path in document["paths"].values() for one in path.values()):
            if "HTTPValidationError" in str(described["responses"].get("422")):
                del described["responses"]["422"]  # FastAPI's own; clients of this path get a 400
        for name in _request_bodies(document):
            _describe_defaults(known[name])
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "A key or a JWT."}}
        document["security"] = [{"key": []}, {}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _request_bodies(document: dict[str, Any]) -> set[str]:
    """Return the names of the schemas that only requests use: those of bodies, and the ones inside them."""
    text = json.dumps([one.get("requestBody") for path in document["paths"].values() for one in path.values()])
    known, found, open_ = document["components"]["schemas"], set[str](), {*REFERENCE.findall(text)}
    while open_:
        found |= open_
        open_ = {*REFERENCE.findall(json.dumps([known[name] for name in open_]))} - found
    return found


def _describe_defaults(schema: dict[str, Any]) -> None:
    """Put the defaults of a request body into words: generators of TypeScript require fields that have a default."""
    for field in schema.get("properties", {}).values():
        if field.get("default") is not None:
            words = f"{field.get('description', '')} Default: {json.dumps(field.pop('default'))}."
            field["description"] = words.strip()


def _add_schema(known: dict[str, Any], model: Any) -> None:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    known.update(schema.pop("$defs", {}))
    known[model.__name__] = schema
