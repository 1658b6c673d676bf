"""The application: HTTP routes and the WebSocket, over one set of services."""

from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from waypost.server.context import ServerContext
from waypost.server.http.routing import make_http_app
from waypost.server.sessions.connection import Connection


def make_app(services: ServerContext) -> Starlette:
    """The ASGI application of an open relay."""

    async def connect(websocket: WebSocket) -> None:
        await Connection(websocket, services).run()

    app = make_http_app()
    app.state.services = services
    app.router.routes += [WebSocketRoute("/v1/connect", connect)]
    return app
