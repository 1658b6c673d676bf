"""Access rules and settings."""

import msgspec

from waypost.policy.access import AccessRule, AccessRules, Priority
from waypost.policy.settings import lint, to_config_document
from waypost.relay.relay import Relay
from waypost.server.context import SERVED_SETTINGS
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
from waypost.wire.config_schema import config_type
from waypost.wire.http_bodies import ConfigState, PatternText, RuleList, RuleRequest

CONFIG = config_type(SERVED_SETTINGS)
CONFIG_STATE = msgspec.defstruct(
    "ConfigState",
    [("settings", CONFIG)],
    bases=(ConfigState,),
    namespace={"__doc__": ConfigState.__doc__},
    kw_only=True,
)
"""`ConfigState` as it is described: its settings have the shape of a `config.json`."""


class ChangeQuery(msgspec.Struct, forbid_unknown_fields=True):
    """With `dry_run`, nothing is changed."""

    dry_run: bool = False


class RuleKey(
    msgspec.Struct,
    forbid_unknown_fields=True,
    rename={"from_": "from", "from_key": "fromKey"},
):
    """The patterns of rules, and their key; with `priority`, of the one rule that has it."""

    from_: PatternText
    to: PatternText
    from_key: str | msgspec.UnsetType = msgspec.UNSET
    priority: Priority | msgspec.UnsetType = msgspec.UNSET


async def list_rules(call: Call[NoParameters, None]) -> Reply:
    """Return the rules in force."""
    return Reply(_rules(call.context.relay))


async def add_rule(call: Call[ChangeQuery, RuleRequest]) -> Reply:
    """Add a rule, replacing one with the same identity; or return the rules with it."""
    request, access = call.body, call.context.relay.access
    rule = AccessRule(request.from_, request.to, request.action, request.priority, request.from_key)
    if call.parameters.dry_run:
        would_be = AccessRules(access.list_rules()).with_rule(rule)
        return Reply(RuleList(rules=would_be.list_rules(), problem=access.problem))
    access.add_rule(rule)
    return Reply(_rules(call.context.relay))


async def remove_rule(call: Call[RuleKey, None]) -> Reply:
    """Remove one rule of a pair, or all."""
    query, access = call.parameters, call.context.relay.access
    key = None if query.from_key is msgspec.UNSET else query.from_key
    priority = None if query.priority is msgspec.UNSET else query.priority
    if not access.remove_rule(query.from_, query.to, key, priority):
        text = "no rule with these patterns; 'waypost rules list' shows all"
        raise HttpError(404, f"not found: {text}")
    return Reply(_rules(call.context.relay))


async def get_config(call: Call[NoParameters, None]) -> Reply:
    """Return the settings file and the settings in force."""
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
    """Replace the settings file, or only check it."""
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
    """Return the file as JSON; empty if it is invalid (then `problem` is set)."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _raw(content: bytes) -> bytes:
    """Return the body unchecked: `consider` validates it."""
    return content


_BROKEN = "The rules file is invalid; repair or delete it first."

CONFIG_BODY = Body(_raw, (CONFIG,))
"""A `config.json`, as it was sent."""

OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/rules",
        access=Access.OPERATOR,
        summary="List access rules",
        description="In the order in which they are applied; the first match decides.",
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
            "Replaces a rule with the same `from`, `to`, `fromKey` and `priority`. On disk when the"
            " response arrives. With `dry_run=true` nothing is changed."
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
        summary="Remove access rules",
        description=(
            "Removes all rules with these `from`, `to` and `fromKey`, or without a key; with"
            " `priority`, only the one that has it."
        ),
        tag="rules",
        handler=remove_rule,
        parameters=RuleKey,
        body=NO_BODY,
        answer=Answer(RuleList),
        rejections={404: "No such rule.", 409: _BROKEN},
    ),
    Operation(
        method="GET",
        path="/v1/config",
        access=Access.OPERATOR,
        summary="Settings",
        description="`config` is the file, `settings` are all settings in force.",
        tag="config",
        handler=get_config,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(CONFIG_STATE),
    ),
    Operation(
        method="PUT",
        path="/v1/config",
        access=Access.OPERATOR,
        summary="Replace the settings file",
        description=(
            "The body replaces `config.json`; with one invalid value, nothing changes. With"
            " `dry_run=true` it is only checked. `notes` lists settings that cannot work as"
            " intended."
        ),
        tag="config",
        handler=put_config,
        parameters=ChangeQuery,
        body=CONFIG_BODY,
        answer=Answer(CONFIG_STATE),
    ),
)
