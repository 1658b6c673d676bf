"""The gate: what every request and every WebSocket passes before it is routed.

Rule 1  A request must name this relay as its host. Another name may be that of a web page, made to
        resolve to this machine. Health checks, which often know an address only, may name any host.
Rule 2  A web page may call the relay only if it is the relay's own. Links to it are allowed.
Rule 3  The address of a caller is its connection's, or what a trusted proxy reports.
"""

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from waypost.server.http.errors import HttpError
from waypost.server.http.operations import OPERATIONS
from waypost.server.http.routing import respond_rejected
from waypost.server.origins import Origins, put_origins
from waypost.server.proxies import TrustedProxies

ANY_HOST_PATHS = frozenset(one.path for one in OPERATIONS if one.any_host)
OWN_SITES = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site`: requests of the relay's own pages, and of the person at the browser.
Browsers send it with images and scripts, too, which have no Origin header."""


class Gate:
    """An ASGI application in front of `app`; the relay has the names `origins`."""

    def __init__(
        self, app: ASGIApp, origins: Origins, proxies: TrustedProxies | None = None
    ) -> None:
        self._app = app
        self._origins = origins
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        problem = self._check(scope)
        if problem is not None:
            await respond_rejected(problem)(scope, receive, send)
            if scope["type"] == "websocket":
                raise ClientDisconnected  # uvicorn would log an error: there was no handshake
            return
        if self._proxies:
            _find_caller(scope, self._proxies)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> HttpError | None:
        """Return the error of a request that is not for this relay, or None."""
        reached = scope.get("server")
        headers = dict(scope["headers"])
        if b"origin" in headers:
            for origin in _values(scope, b"origin"):
                if not self._origins.is_own_page(origin, reached):
                    return _foreign_page(f"foreign origin {origin.decode('latin-1')!r:.80}")
        is_own_site = headers.get(b"sec-fetch-site", b"none") in OWN_SITES
        if not is_own_site and headers.get(b"sec-fetch-mode") != b"navigate":
            return _foreign_page("cross-site request")
        origins = self._origins.of_host(headers.get(b"host", b""), reached)
        if len(headers) != len(scope["headers"]) and len(_values(scope, b"host")) > 1:
            origins = ()
        if not origins and scope["path"] not in ANY_HOST_PATHS:
            return _misdirected(_values(scope, b"host"))
        put_origins(scope, origins)
        return None


def _misdirected(hosts: list[bytes]) -> HttpError:
    if len(hosts) != 1:
        return HttpError(421, "misdirected request: it needs one Host header, a name of this relay")
    named = hosts[0].decode("latin-1")
    return HttpError(
        421,
        f"misdirected request: {named!r:.80} is not a name of this relay; use one of its names, or"
        " start it with --origin and this one",
    )


def _foreign_page(what: str) -> HttpError:
    return HttpError(403, f"{what}: web pages of other origins cannot use this relay")


def _values(scope: Scope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def _find_caller(scope: Scope, proxies: TrustedProxies) -> None:
    peer = scope.get("client")
    given = [value.decode("latin-1") for value in _values(scope, b"x-forwarded-for")]
    if peer and given:
        caller = proxies.caller_behind(peer[0], given)
        if caller != peer[0]:
            scope["client"] = (caller, 0)
