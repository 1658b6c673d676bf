"""The description of the HTTP interface: an OpenAPI document and a page."""

from waypost.server.http.callers import Access
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Call,
    NoParameters,
    Operation,
    Reply,
)

_HTML = "text/html; charset=utf-8"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


async def get_document(call: Call[NoParameters, None]) -> Reply:
    """Return the OpenAPI document."""
    return Reply(call.request.app.state.documents.json)


async def get_page(call: Call[NoParameters, None]) -> Reply:
    """Return the document as an HTML page."""
    content = call.request.app.state.documents.html
    return Reply(content, media_type=_HTML, headers={"Content-Security-Policy": _POLICY})


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/openapi.json",
        access=Access.ANYONE,
        summary="OpenAPI document of this interface",
        description="OpenAPI 3.1.",
        tag="documents",
        handler=get_document,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(dict),
        needs_relay=False,
    ),
    Operation(
        method="GET",
        path="/docs",
        access=Access.ANYONE,
        summary="Documentation of this interface",
        description="One page without external resources.",
        tag="documents",
        handler=get_page,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(None, "An HTML page.", _HTML),
        needs_relay=False,
    ),
)
