"""Serves the operations: finds the one that is meant, lets the caller in, decodes, calls, answers.

Rule 1  Every answer that is no success is a `Problem` as JSON, whoever made it.
Rule 2  Nothing is decoded for a caller that is not let in.
Rule 3  What is answered is not kept by anyone on the way.

Handlers get their `Services` from `app.state.services`; while it is not there, the relay is not
open, and everything that needs it is answered with 503.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Route

from waypost.server.context import ServerContext
from waypost.server.http.callers import Access, identify
from waypost.server.http.contract import AnyOperation, Call, Reply
from waypost.server.http.errors import HttpError, rejection_of
from waypost.server.http.operations import OPERATIONS
from waypost.server.http.requests import read_body, read_parameters

log = logging.getLogger("waypost.server")

_encode = msgspec.json.Encoder().encode
_EVERY_ANSWER = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def make_routes() -> list[BaseRoute]:
    """The routes of the HTTP interface."""
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
        operation = _meant(operations, request.method)
        services: ServerContext | None = getattr(request.app.state, "services", None)
        if services is None:
            if operation.needs_relay:
                return respond_rejected(HttpError(503, "the relay is not open yet"))
            return await _answer(operation, request, cast(ServerContext, None))
        began = time.perf_counter()
        response = await _answer(operation, request, services)
        seconds = time.perf_counter() - began
        services.meters.answered(operation.method, path, response.status_code, seconds)
        return response

    return answer


def _meant(operations: Mapping[str, AnyOperation], method: str) -> AnyOperation:
    """HEAD is GET without its content, where GET changes nothing: reading an inbox does."""
    operation = operations.get("GET" if method == "HEAD" else method)
    if operation is None or (method == "HEAD" and operation.access is not Access.ANYONE):
        raise HTTPException(405)
    return operation


async def _answer(operation: AnyOperation, request: Request, services: ServerContext) -> Response:
    try:
        caller = identify(request, services, operation.access)
        parameters = read_parameters(request, operation.parameters)
        reads = operation.body.read is not None
        body = await read_body(request, operation.body, services.options) if reads else None
        call = Call(services, caller, parameters, body, request)
        return respond(await operation.handler(call))
    except Exception as problem:
        rejected = rejection_of(problem)
        if rejected.status == 500:
            log.exception("%s %s failed", operation.method, operation.path)
        return respond_rejected(rejected)


def respond(reply: Reply) -> Response:
    """A reply as Starlette sends it."""
    headers = {**_EVERY_ANSWER, **reply.headers, "Content-Type": reply.media_type}
    if isinstance(reply.content, AsyncIterator):
        return StreamingResponse(reply.content, status_code=reply.status, headers=headers)
    content = reply.content if isinstance(reply.content, bytes) else _encode(reply.content)
    return Response(content, status_code=reply.status, headers=headers)


def respond_rejected(rejected: HttpError) -> Response:
    """A refusal as Starlette sends it."""
    return respond(Reply(rejected.problem, rejected.status, rejected.headers))


async def _unrouted(request: Request, problem: Exception) -> Response:
    """Unknown paths and methods, and whatever else is refused before an operation is found."""
    status = problem.status_code if isinstance(problem, HTTPException) else 500
    if status == 405:
        allowed = ", ".join(_methods_of(request))
        return respond_rejected(HttpError(405, f"only {allowed} here", headers={"Allow": allowed}))
    text = "there is nothing here" if status == 404 else str(getattr(problem, "detail", ""))
    return respond_rejected(HttpError(status, text))


async def _unexpected(request: Request, problem: Exception) -> Response:
    """A mistake of ours outside of every operation."""
    return respond_rejected(rejection_of(problem))


def _methods_of(request: Request) -> list[str]:
    """What this path takes: a path may be one of its own and an example of another."""
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
    """The HTTP interface alone; set `app.state.services` before it is asked for anything."""
    app = Starlette(routes=make_routes(), exception_handlers=EXCEPTION_HANDLERS)
    app.router.redirect_slashes = False
    return app
