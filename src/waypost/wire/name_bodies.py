"""HTTP bodies about names: their list, their binding by the operator, and the rotation of a key."""

from datetime import datetime

import msgspec

from waypost.wire.http_bodies import RequestBody, SubjectText


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


class RotationRequest(RequestBody, kw_only=True):
    """The move of a name from the key that owns it to a new one, signed by both.

    Keys, nonce and signatures are unpadded base64url. The sealing key is signed with the new key.
    """

    subject: SubjectText
    public_key: str
    new_public_key: str
    nonce: str
    signature: str
    new_signature: str
    sealing_key: str | None = None
    sealing_signature: str | None = None


class RotationResponse(msgspec.Struct, kw_only=True):
    """The key that owns a name from now on."""

    subject: str
    public_key: str


class BindRequest(RequestBody, kw_only=True):
    """The key that owns a name from now on.

    With `replace`, the name is taken from another key in the same step.
    """

    public_key: str
    replace: bool = False
