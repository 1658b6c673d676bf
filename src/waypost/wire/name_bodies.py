"""HTTP bodies about names: their list, and the binding of a name by the operator."""

from datetime import datetime

import msgspec

from waypost.wire.http_bodies import RequestBody


class NameInfo(msgspec.Struct, kw_only=True):
    """A name and its owner since `bound_at`.

    `by_operator`: the operator bound it or confirmed its key. `unused`: its agent has done nothing
    but bind it, so it may expire. `connected`: None if that is unknown.
    """

    subject: str
    public_key: str
    bound_at: datetime
    by_operator: bool
    unused: bool
    connected: bool | None = None


class NameList(msgspec.Struct, kw_only=True):
    """One page of names, sorted; `next` is the `after` of the next page."""

    names: list[NameInfo]
    next: str | None = None


class BindRequest(RequestBody, kw_only=True):
    """The key that owns a name from now on.

    With `replace`, the name is taken from another key in the same step.
    """

    public_key: str
    replace: bool = False
