"""The client: connects an agent's own process to a relay.

    from waypost.client import Identity, connect

    async with connect("http://127.0.0.1:7171", Identity.load("web.key")) as agent:
        await agent.send("agent.billing", {"refund": 12})

`waypost.client.blocking` is the same without asyncio; `waypost.client.http` is the HTTP client.

Imports `policy` and `wire` only, never `relay`: an agent of a remote relay needs no storage code.
Names are loaded on first use, so that using only the guard needs none of the libraries for
connecting.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waypost.client import blocking
    from waypost.client.aio import Agent, connect
    from waypost.client.errors import (
        AgentClosed,
        AlreadyConnected,
        CannotConnect,
        ClientError,
        DeliveryTimedOut,
        MissingExtra,
        NotAuthenticated,
        OperationRejected,
        ReceiveTimedOut,
        RelayMoved,
        RequestBlocked,
        RequestFailed,
        RequestRejected,
        RequestTimedOut,
        SendTimedOut,
        SubjectTaken,
        WrongReceiveMode,
    )
    from waypost.client.guard import MessagingGuard
    from waypost.client.identity import Identity
    from waypost.client.message import Message, Outgoing
    from waypost.client.options import ClientOptions
    from waypost.wire.cards import AgentCard
    from waypost.wire.frames import DeliveryConfirm, QueueFull, RequestFailure
    from waypost.wire.sealing import Card

__all__ = [
    "Agent",
    "AgentCard",
    "AgentClosed",
    "AlreadyConnected",
    "CannotConnect",
    "Card",
    "ClientError",
    "ClientOptions",
    "DeliveryConfirm",
    "DeliveryTimedOut",
    "Identity",
    "Message",
    "MessagingGuard",
    "MissingExtra",
    "NotAuthenticated",
    "OperationRejected",
    "Outgoing",
    "QueueFull",
    "ReceiveTimedOut",
    "RelayMoved",
    "RequestBlocked",
    "RequestFailed",
    "RequestFailure",
    "RequestRejected",
    "RequestTimedOut",
    "SendTimedOut",
    "SubjectTaken",
    "WrongReceiveMode",
    "blocking",
    "connect",
]

_MODULE_OF = {
    "Agent": "waypost.client.aio",
    "connect": "waypost.client.aio",
    "MessagingGuard": "waypost.client.guard",
    "Identity": "waypost.client.identity",
    "Message": "waypost.client.message",
    "ClientOptions": "waypost.client.options",
    "Outgoing": "waypost.client.message",
    "AgentCard": "waypost.wire.cards",
    "DeliveryConfirm": "waypost.wire.frames",
    "QueueFull": "waypost.wire.frames",
    "RequestFailure": "waypost.wire.frames",
    "Card": "waypost.wire.sealing",
}
_EXTRA = {"cryptography", "websockets"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'waypost.client' has no attribute {name!r}")
    try:
        if name == "blocking":
            return import_module("waypost.client.blocking")
        return getattr(import_module(_MODULE_OF.get(name, "waypost.client.errors")), name)
    except ModuleNotFoundError as missing:
        library = (missing.name or "").partition(".")[0]
        if library not in _EXTRA:
            raise
        from waypost.client.errors import MissingExtra

        raise MissingExtra(library) from None
