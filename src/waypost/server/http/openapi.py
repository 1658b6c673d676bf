"""The OpenAPI 3.1 document, made from the table of operations."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from inspect import cleandoc
from typing import Any

import msgspec

from waypost.server.http.callers import Access
from waypost.server.http.contract import JSON, Answer, AnyOperation
from waypost.server.http.operations import OPERATIONS

_REF = "#/components/schemas/{name}"
_DESCRIPTION = (
    "A message relay for software agents. Errors are one shape: `error` is for people, `reason`"
    " for programs, `retry_after_ms` where waiting helps. Tokens come from `/v1/auth/token`; the"
    " operator's lies in the data directory. Agents may also connect to `/v1/connect` by"
    " WebSocket and get their messages as they come."
)
_RETRY_AFTER = {
    "description": "Seconds to wait; only where the time is known.",
    "schema": {"type": "integer", "minimum": 1},
}
_ASKS_FOR_TOKEN = {"description": "Always `Bearer`.", "schema": {"type": "string"}}


def make_document() -> dict[str, Any]:
    """The document, as JSON would hold it."""
    kinds = _Kinds()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, kinds)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waypost", "version": _version(), "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": kinds.components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Of an agent."},
                "operator": {"type": "http", "scheme": "bearer", "description": "The operator's."},
            },
        },
    }


class _Kinds:
    """The schemas of everything that is sent or answered; all at once, so that names are kept."""

    def __init__(self) -> None:
        kinds: list[Any] = []
        for operation in OPERATIONS:
            kinds += operation.body.types
            kinds += [kind for one in operation.answers().values() for kind in one.kinds]
        distinct = [kind for at, kind in enumerate(kinds) if kind not in kinds[:at]]
        schemas, self.components = msgspec.json.schema_components(distinct, ref_template=_REF)
        self._schemas = list(zip(distinct, schemas, strict=True))
        for schema in self.components.values():
            schema["description"] = cleandoc(schema.get("description", ""))

    def schema(self, kind: Any) -> dict[str, Any]:
        """How a kind is referred to."""
        return next(schema for known, schema in self._schemas if known == kind)

    def any_of(self, kinds: Sequence[Any]) -> dict[str, Any]:
        """One of these."""
        schemas = [self.schema(kind) for kind in kinds]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _describe(operation: AnyOperation, kinds: _Kinds) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"{operation.description}\n\nMay be called by {operation.access}.",
        "responses": {
            str(status): _response(status, answer, kinds)
            for status, answer in operation.answers().items()
        },
    }
    parameters = _parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.body.read is not None:
        schema = kinds.any_of(operation.body.types)
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    security = _SECURITY[operation.access]
    if security:
        described["security"] = security
    return described


_SECURITY: dict[Access, list[dict[str, list[str]]]] = {
    Access.ANYONE: [],
    Access.PUBLISHER: [{}, {"token": []}, {"operator": []}],
    Access.AGENT: [{"token": []}, {"operator": []}],
    Access.OPERATOR: [{"operator": []}],
}


def _parameters(operation: AnyOperation) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(operation.parameters)
    struct = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    in_path = operation.path_names
    return [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in struct.get("required", ()),
            "schema": schema,
        }
        for name, schema in struct["properties"].items()
    ]


def _response(status: int, answer: Answer, kinds: _Kinds) -> dict[str, Any]:
    schema = kinds.any_of(answer.kinds) if answer.kinds else {"type": "string"}
    described: dict[str, Any] = {"description": answer.text or "OK"}
    if status != 304:  # nothing follows
        media_types = (answer.media_type, *answer.or_media_types)
        described["content"] = {one: {"schema": schema} for one in media_types}
    if status in (429, 503):
        described["headers"] = {"Retry-After": _RETRY_AFTER}
    elif status == 401:
        described["headers"] = {"WWW-Authenticate": _ASKS_FOR_TOKEN}
    return described


def _version() -> str:
    try:
        return version("waypost")
    except PackageNotFoundError:
        return "0"
