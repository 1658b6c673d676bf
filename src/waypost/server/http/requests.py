"""Reading a request: its parameters and its body, checked against what the operation says."""

import asyncio
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from waypost.server.context import ServeOptions
from waypost.server.http.contract import JSON, Body, NoParameters
from waypost.server.http.errors import HttpError

T = TypeVar("T")

SMALL_BODY_MAX_BYTES = 1024 * 1024
"""Of a request that carries no messages."""

BODY_WAIT_MAX_S = 30.0


def read_parameters(request: Request, kind: type[T]) -> T:
    """The parameters of the path and the query as a struct, or `ValidationError`."""
    if kind is NoParameters:
        return kind()
    given: dict[str, Any] = dict(request.path_params)
    for name, value in request.query_params.multi_items():
        if name in given:
            raise HttpError(400, f"{name!r:.80} is given twice")
        given[name] = value
    return msgspec.convert(given, kind, strict=False)


async def read_body(request: Request, body: Body[T], options: ServeOptions) -> T:
    """The body as a struct."""
    assert body.read is not None
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise HttpError(415, f"expected 'Content-Type: {JSON}', not {media_type!r:.80}")
    max_bytes = options.body_max_bytes if body.carries_messages else SMALL_BODY_MAX_BYTES
    try:
        async with asyncio.timeout(BODY_WAIT_MAX_S):
            content = await _read_all(request, max_bytes)
    except TimeoutError:
        raise HttpError(408, f"the body did not come within {BODY_WAIT_MAX_S:g} s") from None
    except ClientDisconnect:
        raise HttpError(400, "the caller went away") from None
    return body.read(content)


async def _read_all(request: Request, max_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
    return b"".join(pieces)


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(413, f"the body is larger than {max_bytes:,} bytes")
