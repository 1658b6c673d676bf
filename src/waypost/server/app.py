"""The ASGI application: HTTP routes and the WebSocket, over one server context."""

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from waypost.server.context import ServerContext
from waypost.server.http.routing import make_http_app
from waypost.server.sessions.connection import Connection


def make_app(context: ServerContext) -> Starlette:
    """Return the ASGI application of an open relay."""

    async def connect(websocket: WebSocket) -> None:
        await Connection(websocket, context).run()

    app = make_http_app()
    app.state.context = context
    app.router.routes += [WebSocketRoute("/v1/connect", connect)]
    return app
