"""Routes requests to operations: authorise the caller, decode, call the handler, respond.

Rule 1  Every error response is a `Problem` as JSON.
Rule 2  Nothing is decoded for an unauthorised caller.
Rule 3  Responses must not be cached on the way.

Handlers get their context from `app.state.context`; while it is missing, the relay is not open,
and every operation that needs it is answered with 503.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Route

from waypost.policy.bounds import arriving_bodies_max_bytes
from waypost.server.context import ArrivingBodies, ServerContext
from waypost.server.http.callers import ANONYMOUS_CALLER, Access, Caller, identify
from waypost.server.http.contract import JSON, AnyOperation, Body, Call, NoParameters, Reply
from waypost.server.http.decoding import explained
from waypost.server.http.errors import HttpError, rejection_of
from waypost.server.http.openapi import ApiDocuments
from waypost.server.http.operations import OPERATIONS

log = logging.getLogger("waypost.server")

T = TypeVar("T")

SMALL_BODY_MAX_BYTES = 1024 * 1024
"""The size limit of requests without messages."""

SHORT_BODY_BYTES = 64 * 1024
"""A body up to this size is read however many others are arriving."""

BODY_WAIT_MAX_S = 30.0

_encode = msgspec.json.Encoder().encode
_COMMON_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def make_routes() -> list[BaseRoute]:
    """Return the routes of the HTTP interface."""
    by_path: dict[str, dict[str, AnyOperation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(path, _served(path, found), methods=list(found)) for path, found in by_path.items()
    ]


def _served(
    path: str, operations: Mapping[str, AnyOperation]
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        operation = _select(operations, request.method)
        context: ServerContext | None = getattr(request.app.state, "context", None)
        if context is None:
            if operation.needs_relay:
                return respond_rejected(HttpError(503, "the relay is not open yet; try again"))
            return await _answer(operation, request, cast(ServerContext, None))
        began = time.perf_counter()
        response = await _answer(operation, request, context)
        seconds = time.perf_counter() - began
        context.http_metrics.record(operation.method, path, response.status_code, seconds)
        return response

    return answer


_OPEN = (Access.ANYONE, Access.SCRAPER)


def _select(operations: Mapping[str, AnyOperation], method: str) -> AnyOperation:
    """Return the operation of a method. HEAD is GET, except where GET has side effects."""
    operation = operations.get("GET" if method == "HEAD" else method)
    if operation is None or (method == "HEAD" and operation.access not in _OPEN):
        raise HTTPException(405)
    return operation


async def _answer(operation: AnyOperation, request: Request, context: ServerContext) -> Response:
    try:
        caller = identify(request, context, operation.access)
        parameters = read_parameters(request, operation.parameters)
        reads = operation.body.read is not None
        body = await read_body(request, operation.body, caller, context) if reads else None
        call = Call(context, caller, parameters, body, request)
        return respond(await operation.handler(call))
    except Exception as problem:
        rejected = rejection_of(problem)
        if rejected.status == 500:
            log.exception("%s %s failed", operation.method, operation.path)
        return respond_rejected(rejected)


def read_parameters(request: Request, kind: type[T]) -> T:
    """Return path and query parameters as a struct. Raises `HttpError` (400)."""
    if kind is NoParameters:
        return kind()
    given: dict[str, Any] = dict(request.path_params)
    for name, value in request.query_params.multi_items():
        if name in given:
            raise HttpError(400, f"duplicate parameter {name!r:.80}")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise HttpError(400, explained(problem, (kind,))) from None


async def read_body(request: Request, body: Body[T], caller: Caller, context: ServerContext) -> T:
    """Read and decode the body."""
    assert body.read is not None
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise HttpError(
            415, f"unsupported media type {media_type!r:.80}: expected 'Content-Type: {JSON}'"
        )
    max_bytes = context.options.body_max_bytes if body.carries_messages else SMALL_BODY_MAX_BYTES
    try:
        async with asyncio.timeout(BODY_WAIT_MAX_S):
            content = await _read_all(request, max_bytes, caller, context.arriving)
    except TimeoutError:
        raise HttpError(
            408, f"timeout: the body did not arrive within {BODY_WAIT_MAX_S:g} s"
        ) from None
    except ClientDisconnect:
        raise HttpError(400, "the caller disconnected") from None
    try:
        return body.read(content)
    except msgspec.ValidationError as problem:
        raise HttpError(400, explained(problem, body.types)) from None
    except msgspec.DecodeError as problem:
        raise HttpError(400, f"the body is not JSON: {problem}") from None


async def _read_all(
    request: Request, max_bytes: int, caller: Caller, arriving: ArrivingBodies
) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    share = arriving_bodies_max_bytes // (2 if caller is ANONYMOUS_CALLER else 1)
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            size += len(piece)
            arriving.held_bytes += len(piece)
            if size > max_bytes:
                raise _too_large(max_bytes)
            if size > SHORT_BODY_BYTES and arriving.held_bytes > share:
                raise HttpError(503, "too many long requests at once; try again", reason="full")
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        arriving.held_bytes -= size


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(413, f"body too large: the limit is {max_bytes:,} bytes")


def respond(reply: Reply) -> Response:
    """Return a reply as a Starlette response."""
    headers = {**_COMMON_HEADERS, **reply.headers, "Content-Type": reply.media_type}
    if isinstance(reply.content, AsyncIterator):
        return StreamingResponse(reply.content, status_code=reply.status, headers=headers)
    content = reply.content if isinstance(reply.content, bytes) else _encode(reply.content)
    return Response(content, status_code=reply.status, headers=headers)


def respond_rejected(rejected: HttpError) -> Response:
    """Return an error as a Starlette response."""
    return respond(Reply(rejected.problem, rejected.status, rejected.headers))


async def _unrouted(request: Request, problem: Exception) -> Response:
    """Respond to unknown paths and methods, and to other errors before an operation is found."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    if status == 405:
        allowed = ", ".join(_methods_of(request))
        return respond_rejected(
            HttpError(405, f"method not allowed: only {allowed}", headers={"Allow": allowed})
        )
    text = str(getattr(problem, "detail", ""))
    if status == 404:
        text = "not found: no such path; /docs describes all of them"
    return respond_rejected(HttpError(status, text))


async def _unexpected(request: Request, problem: Exception) -> Response:
    """Respond to an unexpected error outside of all operations."""
    return respond_rejected(rejection_of(problem))


def _methods_of(request: Request) -> list[str]:
    """Return the methods of a path; a literal path may also match one with parameters."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found - {"HEAD"})


EXCEPTION_HANDLERS: Mapping[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
    HTTPException: _unrouted,
    Exception: _unexpected,
}


def make_http_app() -> Starlette:
    """Return the HTTP application alone; set `app.state.context` to open it for requests."""
    app = Starlette(routes=make_routes(), exception_handlers=EXCEPTION_HANDLERS)
    app.router.redirect_slashes = False
    app.state.documents = ApiDocuments(OPERATIONS)
    return app
