"""The definition of an HTTP operation: one value that describes it completely.

Rule 1  Routes, decoding, checks, statuses and the OpenAPI document are generated from these
        values. Nothing about an operation is stated twice.
Rule 2  Parameters are a struct: fields named in the path come from there, the others from the
        query. The body is one struct, or one of several.
Rule 3  The possible errors follow from the callers and the input of an operation; it names only
        those of its own.
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
    """No parameters; a query is ignored."""


@dataclass(frozen=True)
class Body(Generic[B]):
    """The decoder of a request body, and its possible structs.

    With `carries_messages`, the size limit is that of messages.
    """

    read: Callable[[bytes], B] | None
    types: tuple[Any, ...] = ()
    carries_messages: bool = False


NO_BODY: Body[None] = Body(None)


def json_body(kind: type[B]) -> Body[B]:
    """Return a body that is the JSON of one struct."""
    return Body(msgspec.json.Decoder(kind).decode, (kind,))


@dataclass(frozen=True)
class Call(Generic[P, B]):
    """One authorised and decoded request."""

    context: ServerContext
    caller: Caller
    parameters: P
    body: B
    request: Request


@dataclass(frozen=True)
class Reply:
    """A response: a struct, sent as JSON; bytes; or a stream of bytes."""

    content: object
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON


@dataclass(frozen=True)
class Answer:
    """One documented response. `kind` is its struct, None if it is not JSON.

    `or_kind` and `or_media_types` are alternatives.
    """

    kind: Any
    text: str = ""
    media_type: str = JSON
    or_kind: Any = None
    or_media_types: tuple[str, ...] = ()

    @property
    def kinds(self) -> list[Any]:
        """The possible structs."""
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
    """False: the operation works while the relay is not open; its call has no context."""
    any_host: bool = False
    """True: the Host header of the request need not name the relay."""

    @property
    def name(self) -> str:
        """The name in the OpenAPI document: that of the handler."""
        return self.handler.__name__

    @property
    def path_names(self) -> list[str]:
        """The names of the path parameters."""
        return _path_names(self.path)

    def answers(self) -> dict[int, Answer]:
        """Return every possible response by status."""
        problems = {**self._implied_rejections(), **self.rejections}
        found = {200: self.answer}
        for status, text in problems.items():
            found.setdefault(status, Answer(None if status == 304 else Problem, text))
        return dict(sorted(found.items()))

    def _implied_rejections(self) -> dict[int, str]:
        implied = [403, 500, 503] if self.needs_relay else [403, 500]
        if not self.any_host:
            implied.append(421)
        if self.parameters is not NoParameters or self.body.read is not None:
            implied.append(400)
        if self.access is not Access.ANYONE:
            implied.append(401)
        if self.path_names:
            implied.append(404)
        if self.body.read is not None:
            implied += [408, 413, 415]
        return {status: HTTPStatus(status).phrase for status in implied}


AnyOperation = Operation[Any, Any]
