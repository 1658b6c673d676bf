"""The dashboard: one page with its scripts and styles, served from the package.

Rule 1  The page loads nothing from other hosts, and a content security policy enforces it. It
        contains no secret: it requests all data with the operator's token.
Rule 2  Files are served from a fixed list: no path from a request is opened.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated

import msgspec
from starlette.requests import Request

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
from waypost.server.http.errors import HttpError

_HTML = "text/html; charset=utf-8"
_MEDIA_TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types waypost-report"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}

FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern="^[a-z0-9_.-]+$")]


class AssetPath(msgspec.Struct, forbid_unknown_fields=True):
    """The path of a file."""

    folder: FileName
    file: FileName


class Asset(msgspec.Struct, frozen=True):
    """One file of the dashboard; `tag` changes when its content does."""

    content: bytes
    media_type: str
    tag: str


async def get_dashboard(call: Call[NoParameters, None]) -> Reply:
    """Return the page."""
    return _unless_cached(call.request, _assets()["page.html"], _PAGE_HEADERS)


async def get_asset(call: Call[AssetPath, None]) -> Reply:
    """Return a script, a style sheet or a picture of the page."""
    query = call.parameters
    found = _assets().get(f"{query.folder}/{query.file}")
    if found is None:
        raise HttpError(404, "not found: no such file")
    return _unless_cached(call.request, found, {})


def _unless_cached(request: Request, asset: Asset, headers: Mapping[str, str]) -> Reply:
    """Return the file, or 304 if the caller has it already."""
    headers = {**headers, "Cache-Control": "no-cache", "ETag": asset.tag}
    if request.headers.get("if-none-match") == asset.tag:
        return Reply(b"", 304, headers, asset.media_type)
    return Reply(asset.content, 200, headers, asset.media_type)


@cache
def _assets() -> dict[str, Asset]:
    """Return all files by folder and name."""
    root = resources.files("waypost.server") / "dashboard"
    found = {"page.html": _asset((root / "page.html").read_bytes(), _HTML)}
    for folder in root.iterdir():
        if folder.is_dir():
            for file in folder.iterdir():
                media_type = _MEDIA_TYPES.get(file.name.rpartition(".")[2])
                if media_type is not None:
                    name = f"{folder.name}/{file.name}"
                    found[name] = _asset(file.read_bytes(), media_type)
    return found


def _asset(content: bytes, media_type: str) -> Asset:
    return Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:24]}"')


_UNCHANGED = {304: "Not changed since `If-None-Match`."}

OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/",
        access=Access.ANYONE,
        summary="The dashboard",
        description="One page. It asks for the operator's token first.",
        tag="dashboard",
        handler=get_dashboard,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(None, "An HTML page.", _HTML),
        rejections=_UNCHANGED,
        needs_relay=False,
    ),
    Operation(
        method="GET",
        path="/dashboard/{folder}/{file}",
        access=Access.ANYONE,
        summary="A file of the dashboard",
        description="Scripts, styles and pictures.",
        tag="dashboard",
        handler=get_asset,
        parameters=AssetPath,
        body=NO_BODY,
        answer=Answer(
            None, "The file.", _MEDIA_TYPES["js"], or_media_types=(*_MEDIA_TYPES.values(),)[1:]
        ),
        rejections=_UNCHANGED,
        needs_relay=False,
    ),
)
