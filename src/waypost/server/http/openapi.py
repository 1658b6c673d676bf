"""The OpenAPI 3.1 document, and the same as an HTML page, both generated from the operations."""

from collections.abc import Sequence
from functools import cached_property
from html import escape
from inspect import cleandoc
from typing import Any

import msgspec

from waypost.policy.access import AccessRule
from waypost.policy.budgets import Budget
from waypost.server.http.callers import Access
from waypost.server.http.contract import JSON, Answer, AnyOperation
from waypost.version import installed_version
from waypost.wire.envelopes import Envelope
from waypost.wire.payloads import Signal, StandardPayload

MESSAGE_TYPES = (Envelope, Budget, StandardPayload, Signal, AccessRule)
"""Types of messages and rules, described with all that they refer to even if no operation does."""

_REF = "#/components/schemas/{name}"
_DESCRIPTION = (
    "A message relay for software agents. All errors have the same shape: `error` is for people,"
    " `reason` for programs, `retry_after_ms` where waiting helps. Agents get tokens from"
    " `/v1/auth/token`; the operator's token is in the data directory. Agents may also connect to"
    " `/v1/connect` by WebSocket, which delivers messages as they arrive."
)
_RETRY_AFTER = {
    "description": "Seconds to wait; present only if the time is known.",
    "schema": {"type": "integer", "minimum": 1},
}
_ASKS_FOR_TOKEN = {"description": "Always `Bearer`.", "schema": {"type": "string"}}

_LIMITS = {
    "minimum": "from",
    "maximum": "to",
    "minLength": "at least",
    "maxLength": "at most",
}
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; text-transform: capitalize; }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0; }
summary { padding: .5rem .8rem; cursor: pointer; }
details > div { padding: 0 .8rem .8rem; border-top: 1px solid var(--line); }
code, pre { font: .9em/1.4 ui-monospace, monospace; }
.method { display: inline-block; min-width: 4.2em; font-weight: 700; }
pre { background: var(--soft); padding: .6rem; border-radius: .3rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; font-weight: 600; }
th, td { text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th, td { padding: .25rem .8rem .25rem 0; }
"""


class ApiDocuments:
    """The OpenAPI document and its HTML page, generated when they are first read."""

    def __init__(self, operations: Sequence[AnyOperation]) -> None:
        self._operations = operations

    @cached_property
    def json(self) -> bytes:
        """The document as JSON."""
        return msgspec.json.encode(make_document(self._operations))

    @cached_property
    def html(self) -> bytes:
        """The document as a page for people."""
        return make_html(make_document(self._operations)).encode()


def make_document(operations: Sequence[AnyOperation]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    kinds = _Kinds(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, kinds)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waypost", "version": installed_version(), "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": kinds.components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of an agent.",
                },
                "operator": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The operator's token.",
                },
            },
        },
    }


def _bearer(description: str) -> dict[str, str]:
    return {"type": "http", "scheme": "bearer", "description": description}


class _Kinds:
    """The schemas of all requests, responses and message types; together, so that names are
    unique."""

    def __init__(self, operations: Sequence[AnyOperation]) -> None:
        kinds: list[Any] = list(MESSAGE_TYPES)
        for operation in operations:
            kinds += operation.body.types
            kinds += [kind for one in operation.answers().values() for kind in one.kinds]
        distinct = [kind for at, kind in enumerate(kinds) if kind not in kinds[:at]]
        schemas, self.components = msgspec.json.schema_components(distinct, ref_template=_REF)
        self._schemas = list(zip(distinct, schemas, strict=True))
        for schema in self.components.values():
            schema["description"] = cleandoc(schema.get("description", ""))

    def schema(self, kind: Any) -> dict[str, Any]:
        """Return the reference to the schema of a struct."""
        return next(schema for known, schema in self._schemas if known == kind)

    def any_of(self, kinds: Sequence[Any]) -> dict[str, Any]:
        """Return a schema that accepts any of these structs."""
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
    Access.SCRAPER: [{}, {"operator": []}],
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
    if status != 304:  # it has no body
        media_types = (answer.media_type, *answer.or_media_types)
        described["content"] = {one: {"schema": schema} for one in media_types}
    if status in (429, 503):
        described["headers"] = {"Retry-After": _RETRY_AFTER}
    elif status == 401:
        described["headers"] = {"WWW-Authenticate": _ASKS_FOR_TOKEN}
    return described


def make_html(document: dict[str, Any]) -> str:
    """Return the document as an HTML page without external resources."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append(_operation(path, method, operation))
    sections = "".join(
        f"<section><h2>{escape(tag)}</h2>{''.join(found)}</section>"
        for tag, found in by_tag.items()
    )
    schemas = "".join(
        _schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items())
    )
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} HTTP API</title><style>{_STYLE}</style></head><body>"
        f"<main><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{_text(info['description'])}</p>"
        '<p>As OpenAPI document: <a href="/openapi.json">/openapi.json</a></p>'
        f"{sections}<section><h2>Schemas</h2>{schemas}</section></main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = "".join(_parameter(one) for one in operation.get("parameters", ()))
    body = operation.get("requestBody")
    body_text = _content("Body", body["content"]) if body else ""
    rows = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{_text(answer['description'])}</td>"
        f"<td>{_kinds(answer.get('content', {}))}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    responses = _table("Responses", ("Status", "When", "Schema"), rows)
    table = _table("Parameters", ("Name", "In", "Kind"), parameters) if parameters else ""
    return (
        f'<details id="{escape(operation["operationId"])}"><summary>'
        f'<code class="method">{escape(method.upper())}</code> <code>{escape(path)}</code> '
        f"{escape(operation['summary'])}</summary><div><p>{_text(operation['description'])}</p>"
        f"{table}{body_text}{responses}</div></details>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    needed = " (required)" if parameter["required"] else ""
    return (
        f"<tr><td><code>{escape(parameter['name'])}</code>{needed}</td>"
        f"<td>{escape(parameter['in'])}</td><td>{_kind(parameter['schema'])}</td></tr>"
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code>{' (required)' if field in required else ''}</td>"
        f"<td>{_kind(kind)}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    )
    table = _table("Fields", ("Name", "Kind"), rows) if rows else f"<p>{_kind(schema)}</p>"
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<div><p>{_text(schema.get('description', ''))}</p>{table}</div></details>"
    )


def _content(title: str, content: dict[str, Any]) -> str:
    return f"<p><strong>{escape(title)}</strong>: {_kinds(content)}</p>"


def _kinds(content: dict[str, Any]) -> str:
    return ", ".join(
        f"{_kind(one['schema'])} <small>{escape(media)}</small>" for media, one in content.items()
    )


def _kind(schema: dict[str, Any]) -> str:
    """Return a schema as a short phrase, with links to the structs it refers to."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    kind = escape(str(schema.get("format") or schema.get("type") or "anything"))
    limits = [f"{sign} {schema[name]:,}" for name, sign in _LIMITS.items() if name in schema]
    if "default" in schema and schema["default"] is not None:
        limits.append(f"default {schema['default']}")
    return f"{kind} {escape(', '.join(limits))}".strip()


def _table(caption: str, heads: tuple[str, ...], rows: str) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _text(text: str) -> str:
    """Return escaped text with `code` and line breaks."""
    pieces = escape(text).split("`")
    marked = "".join(f"<code>{one}</code>" if at % 2 else one for at, one in enumerate(pieces))
    return marked.replace("\n\n", "<br>")
