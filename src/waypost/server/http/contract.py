"""What an operation of the HTTP interface is: one value that says everything about it.

Rule 1  Routes, decoding, checks, statuses and the OpenAPI document are all made from these values.
        Nothing about an operation is said a second time.
Rule 2  Parameters are a struct: fields named in the path come from there, the others from the
        query. The body is a struct or one of several.
Rule 3  Which refusals are possible follows from who may call and what is read; an operation names
        only those of its own.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Generic, Literal, TypeVar

import msgspec
from starlette.requests import Request

from waypost.server.context import ServerContext
from waypost.server.http.callers import Access, Caller
from waypost.wire.problems import Problem

P = TypeVar("P", bound=msgspec.Struct)
B = TypeVar("B")

JSON = "application/json"
Method = Literal["GET", "POST", "PUT", "DELETE"]

_path_names = re.compile(r"\{(\w+)\}").findall


class NoParameters(msgspec.Struct):
    """Neither in the path nor in the query. What is in the query anyway is ignored."""


@dataclass(frozen=True)
class Body(Generic[B]):
    """How a request's body is read, and the structs it may be. `carries_messages`: it may be as
    large as messages are."""

    read: Callable[[bytes], B] | None
    types: tuple[Any, ...] = ()
    carries_messages: bool = False


NO_BODY: Body[None] = Body(None)


def json_body(kind: type[B]) -> Body[B]:
    """A body that is the JSON of one struct."""
    return Body(msgspec.json.Decoder(kind).decode, (kind,))


@dataclass(frozen=True)
class Call(Generic[P, B]):
    """One request, decoded and let in."""

    context: ServerContext
    caller: Caller
    parameters: P
    body: B
    request: Request


@dataclass(frozen=True)
class Reply:
    """What to answer: a struct, written as JSON; bytes as they are; or a stream of them."""

    content: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON


@dataclass(frozen=True)
class Answer:
    """One documented answer. `kind` is the struct it holds, None if it is no JSON.

    `or_kind`: it may hold this one instead. `or_media_types`: it may be of these instead.
    """

    kind: Any
    text: str = ""
    media_type: str = JSON
    or_kind: Any = None
    or_media_types: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[Any]:
        """The structs it may hold."""
        return [kind for kind in (self.kind, self.or_kind) if kind is not None]


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[P, B]):
    """One method of one path."""

    method: Method
    path: str
    access: Access
    summary: str
    description: str
    tag: str
    handler: Callable[[Call[P, B]], Awaitable[Reply]]
    parameters: type[P]
    body: Body[B]
    answer: Answer
    rejections: Mapping[int, str] = field(default_factory=dict)
    needs_relay: bool = True
    """False: its call has no services, because it is answered while the relay is not open."""

    @property
    def name(self) -> str:
        """The operation's name in the document: its handler's."""
        return self.handler.__name__

    @property
    def path_names(self) -> list[str]:
        """The parameters in the path."""
        return _path_names(self.path)

    def answers(self) -> dict[int, Answer]:
        """Every status this operation may answer with."""
        problems = {**self._implied_rejections(), **self.rejections}
        found = {200: self.answer}
        for status, text in problems.items():
            found.setdefault(status, Answer(None if status == 304 else Problem, text))
        return dict(sorted(found.items()))

    def _implied_rejections(self) -> dict[int, str]:
        implied = [500, 503] if self.needs_relay else [500]
        if self.parameters is not NoParameters or self.body.read is not None:
            implied.append(400)
        if self.access is not Access.ANYONE:
            implied.append(401)
        if self.access is Access.OPERATOR:
            implied.append(403)
        if self.path_names:
            implied.append(404)
        if self.body.read is not None:
            implied += [408, 413, 415]
        return {status: HTTPStatus(status).phrase for status in implied}


AnyOperation = Operation[Any, Any]
