"""Lets nobody speak as this agent over HTTP without the token."""

import secrets

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Doorkeeper:
    """`app`, for whoever sends `Authorization: Bearer <token>`; 401 for anyone else."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").encode()
            if not secrets.compare_digest(given, self._wanted):
                rejected = PlainTextResponse(
                    "this needs a token: send 'Authorization: Bearer <token>'",
                    401,
                    {"WWW-Authenticate": "Bearer"},
                )
                await rejected(scope, receive, send)
                return
        await self._app(scope, receive, send)
