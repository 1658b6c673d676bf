"""Names and the keys they belong to, for the operator."""

from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_subject
from waypost.server.context import ServerContext
from waypost.server.http.callers import Access
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Call,
    Operation,
    Reply,
    json_body,
)
from waypost.server.identity.binding_file import Binding
from waypost.wire.envelopes import instant
from waypost.wire.http_bodies import SubjectText
from waypost.wire.name_bodies import BindRequest, NameInfo, NameList


class NamePage(msgspec.Struct, forbid_unknown_fields=True):
    """The page of the list."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    after: SubjectText | msgspec.UnsetType = msgspec.UNSET


class NamePath(msgspec.Struct, forbid_unknown_fields=True):
    """The subject that is bound to a key."""

    subject: SubjectText


async def list_names(call: Call[NamePage, None]) -> Reply:
    """List names by subject, one page at a time."""
    query, context = call.parameters, call.context
    after = "" if query.after is msgspec.UNSET else validate_subject(query.after)
    found = context.authenticator.bindings.page(after, query.limit + 1)
    more, found = len(found) > query.limit, found[: query.limit]
    return Reply(
        NameList(
            names=[_facts(context, one) for one in found],
            next=found[-1].subject if more else None,
        )
    )


async def bind_name(call: Call[NamePath, BindRequest]) -> Reply:
    """Bind a name to the key that the operator gives."""
    request = call.body
    bound = await call.context.names.bind(
        call.parameters.subject, request.public_key, replace=request.replace
    )
    return Reply(_facts(call.context, bound))


async def unbind_name(call: Call[NamePath, None]) -> Reply:
    """Free a name."""
    freed = await call.context.names.unbind(validate_subject(call.parameters.subject))
    return Reply(_facts(call.context, freed))


def _facts(context: ServerContext, binding: Binding) -> NameInfo:
    return NameInfo(
        subject=binding.subject,
        public_key=binding.public_key,
        bound_at=instant(binding.at_ms * 1000),
        by_operator=binding.by_operator,
        unused=binding.unused,
        connected=context.hub.is_connected(binding.subject),
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/names",
        access=Access.OPERATOR,
        summary="List names",
        description="Sorted by subject; `after` is the `next` of the previous page.",
        tag="names",
        handler=list_names,
        parameters=NamePage,
        body=NO_BODY,
        answer=Answer(NameList),
    ),
    Operation(
        method="PUT",
        path="/v1/names/{subject}",
        access=Access.OPERATOR,
        summary="Bind a name to a key",
        description=(
            "The name belongs to this key from now on, as `names.policy` may demand. Confirms the"
            " owner of a name that is bound to the same key. With `replace`, the name is taken"
            " from another key: its connection ends, and its tokens are invalid."
        ),
        tag="names",
        handler=bind_name,
        parameters=NamePath,
        body=json_body(BindRequest),
        answer=Answer(NameInfo),
        rejections={403: "The name belongs to another key, and `replace` is not set."},
    ),
    Operation(
        method="DELETE",
        path="/v1/names/{subject}",
        access=Access.OPERATOR,
        summary="Free a name",
        description=(
            "Its connection ends, and its tokens are invalid. Its mailbox is kept for the next key"
            " that binds the name."
        ),
        tag="names",
        handler=unbind_name,
        parameters=NamePath,
        body=NO_BODY,
        answer=Answer(NameInfo, "The name before."),
    ),
)
