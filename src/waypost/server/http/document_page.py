"""The interface on one page for people, made from the same document. It loads nothing else."""

from html import escape
from typing import Any

from waypost.server.http.openapi import make_document

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


def make_page() -> str:
    """The page as HTML."""
    document = make_document()
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
        f"<title>{escape(info['title'])} HTTP interface</title><style>{_STYLE}</style></head><body>"
        f"<main><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{_text(info['description'])}</p>"
        '<p>The same for programs: <a href="/openapi.json">/openapi.json</a></p>'
        f"{sections}<section><h2>Shapes</h2>{schemas}</section></main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = "".join(_parameter(one) for one in operation.get("parameters", ()))
    body = operation.get("requestBody")
    asked = _content("Body", body["content"]) if body else ""
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{_text(answer['description'])}</td>"
        f"<td>{_kinds(answer.get('content', {}))}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    table = _table("Parameters", ("Name", "In", "Kind"), parameters) if parameters else ""
    return (
        f'<details id="{escape(operation["operationId"])}"><summary>'
        f'<code class="method">{escape(method.upper())}</code> <code>{escape(path)}</code> '
        f"{escape(operation['summary'])}</summary><div><p>{_text(operation['description'])}</p>"
        f"{table}{asked}{_table('Answers', ('Status', 'When', 'Shape'), answers)}</div></details>"
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
    """A schema in a few words, with links to the shapes it is made of."""
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


_LIMITS = {
    "minimum": "from",
    "maximum": "to",
    "minLength": "at least",
    "maxLength": "at most",
}


def _table(caption: str, heads: tuple[str, ...], rows: str) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _text(text: str) -> str:
    """Escaped, with `code` and paragraphs."""
    pieces = escape(text).split("`")
    marked = "".join(f"<code>{one}</code>" if at % 2 else one for at, one in enumerate(pieces))
    return marked.replace("\n\n", "<br>")
