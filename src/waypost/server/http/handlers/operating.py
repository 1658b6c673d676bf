"""Access rules and settings."""

import msgspec

from waypost.policy.access import AccessRule, AccessRules
from waypost.policy.settings import lint, to_config_document
from waypost.relay.relay import Relay
from waypost.server.http.callers import Access
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Body,
    Call,
    NoParameters,
    Operation,
    Reply,
    json_body,
)
from waypost.server.http.errors import HttpError
from waypost.wire.http_bodies import ConfigState, PatternText, RuleList, RuleRequest


class ChangeQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whether only to look at what would be."""

    dry_run: bool = False


class RuleNamed(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Which rule: there is one for each pair of patterns."""

    from_: PatternText
    to: PatternText


async def list_rules(call: Call[NoParameters, None]) -> Reply:
    """The rules in force."""
    return Reply(_rules(call.context.relay))


async def add_rule(call: Call[ChangeQuery, RuleRequest]) -> Reply:
    """Add a rule, in place of one with the same patterns, or say what would come of it."""
    asked, access = call.body, call.context.relay.access
    rule = AccessRule(asked.from_, asked.to, asked.action, asked.priority)
    if call.parameters.dry_run:
        would_be = AccessRules(access.list_rules()).with_rule(rule)
        return Reply(RuleList(rules=would_be.list_rules(), problem=access.problem))
    access.add_rule(rule)
    return Reply(_rules(call.context.relay))


async def remove_rule(call: Call[RuleNamed, None]) -> Reply:
    """Remove a rule."""
    wanted, access = call.parameters, call.context.relay.access
    known = {(rule.from_, rule.to) for rule in access.list_rules()}
    if not access.problem and (wanted.from_, wanted.to) not in known:
        raise HttpError(404, "there is no such rule")
    access.remove_rule(wanted.from_, wanted.to)
    return Reply(_rules(call.context.relay))


async def get_config(call: Call[NoParameters, None]) -> Reply:
    """The file and what is in force."""
    file = call.context.relay.settings_file
    settings = file.current
    return Reply(
        ConfigState(
            config=_document(file.read() or b"{}"),
            settings=to_config_document(settings),
            notes=lint(settings),
            problem=file.problem,
        )
    )


async def put_config(call: Call[ChangeQuery, bytes]) -> Reply:
    """Replace the file, or say what would come of it."""
    file = call.context.relay.settings_file
    settings = file.consider(call.body)
    if not call.parameters.dry_run:
        file.replace(msgspec.json.format(call.body, indent=2) + b"\n")
        await call.context.relay.sync()
    return Reply(
        ConfigState(
            config=_document(call.body),
            settings=to_config_document(settings),
            notes=lint(settings),
            problem=file.problem,
            written=not call.parameters.dry_run,
        )
    )


def _rules(relay: Relay) -> RuleList:
    return RuleList(rules=relay.access.list_rules(), problem=relay.access.problem)


def _document(content: bytes) -> dict[str, object]:
    """The file as JSON; one that is none is shown as empty, its problem says why."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _as_it_is(content: bytes) -> bytes:
    """`consider` checks it, with its own words for what is wrong."""
    return content


_BROKEN = "The rules file on disk cannot be used; it must be repaired or deleted first."

OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/rules",
        access=Access.OPERATOR,
        summary="List access rules",
        description="In the order in which they are tried; the first that matches decides.",
        tag="rules",
        handler=list_rules,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(RuleList),
    ),
    Operation(
        method="POST",
        path="/v1/rules",
        access=Access.OPERATOR,
        summary="Add an access rule",
        description=(
            "It replaces one with the same `from` and `to`. On disk when answered. With"
            " `dry_run=true` only the answer is made."
        ),
        tag="rules",
        handler=add_rule,
        parameters=ChangeQuery,
        body=json_body(RuleRequest),
        answer=Answer(RuleList),
        rejections={409: _BROKEN},
    ),
    Operation(
        method="DELETE",
        path="/v1/rules",
        access=Access.OPERATOR,
        summary="Remove an access rule",
        description="The one from `from` to `to`.",
        tag="rules",
        handler=remove_rule,
        parameters=RuleNamed,
        body=NO_BODY,
        answer=Answer(RuleList),
        rejections={404: "There is no such rule.", 409: _BROKEN},
    ),
    Operation(
        method="GET",
        path="/v1/config",
        access=Access.OPERATOR,
        summary="Settings",
        description="`config` is the file, `settings` everything that is in force.",
        tag="config",
        handler=get_config,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(ConfigState),
    ),
    Operation(
        method="PUT",
        path="/v1/config",
        access=Access.OPERATOR,
        summary="Replace the settings file",
        description=(
            "The body becomes `config.json`, whole; one bad value and nothing changes. With"
            " `dry_run=true` only the answer is made. `notes` name settings that cannot work as"
            " meant."
        ),
        tag="config",
        handler=put_config,
        parameters=ChangeQuery,
        body=Body(_as_it_is, (dict,)),
        answer=Answer(ConfigState),
    ),
)
