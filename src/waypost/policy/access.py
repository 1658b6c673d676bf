"""Access rules: which sender may publish to which endpoint.

Rule 1  The first matching rule decides: highest priority first, then the order of addition.
Rule 2  Without a matching rule, access is allowed: rules restrict, and none is needed to start.

This module does not know where rules are stored. An unreadable rules file is the relay's concern,
which then denies everything.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from waypost.policy.bounds import access_rules_max
from waypost.policy.errors import InvalidRule, InvalidSubject
from waypost.policy.subjects import matches_pattern, validate_pattern


class AccessRule(msgspec.Struct, frozen=True, rename={"from_": "from"}, forbid_unknown_fields=True):
    """`from_` and `to` are patterns over senders and endpoints."""

    from_: str
    to: str
    action: Literal["allow", "deny"]
    priority: int = 0


class AccessResult(msgspec.Struct, frozen=True):
    """The decision, and the rule that made it, if any."""

    allowed: bool
    matched_rule: AccessRule | None = None


_ALLOWED = AccessResult(True)
_TOO_MANY = f"too many access rules: at most {access_rules_max} are allowed"
DENY_ALL = (AccessRule(">", ">", "deny"),)


def parse_rules(raw: bytes) -> list[AccessRule]:
    """Parse rules from a JSON array; raise `InvalidRule` if one entry is invalid."""
    try:
        rules = msgspec.json.decode(raw, type=list[AccessRule])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise InvalidRule(f"not a list of access rules: {problem}") from None
    if len(rules) > access_rules_max:
        raise InvalidRule(_TOO_MANY)
    return [validate_rule(rule) for rule in rules]


def validate_rule(rule: AccessRule) -> AccessRule:
    """Return `rule` unchanged, or raise `InvalidRule`."""
    try:
        checked = msgspec.convert(msgspec.to_builtins(rule), AccessRule)
        validate_pattern(checked.from_)
        validate_pattern(checked.to)
    except (msgspec.ValidationError, TypeError, InvalidSubject) as problem:
        raise InvalidRule(f"invalid access rule: {problem}") from None
    return checked


class AccessRules:
    """An ordered, immutable list of rules."""

    def __init__(self, rules: Iterable[AccessRule] = ()) -> None:
        self._rules = _ordered(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def check_access(self, from_: str, to: str) -> AccessResult:
        """Return whether the sender `from_` may publish to `to`, and by which rule."""
        for rule in self._rules:
            if matches_pattern(from_, rule.from_) and matches_pattern(to, rule.to):
                return AccessResult(rule.action == "allow", rule)
        return _ALLOWED

    def list_rules(self) -> list[AccessRule]:
        """Return the rules in the order in which they are tried."""
        return list(self._rules)

    def with_rule(self, rule: AccessRule) -> "AccessRules":
        """Return these rules with `rule`, which replaces one with the same `from_` and `to`."""
        kept = self.without_rule(rule.from_, rule.to)._rules
        if len(kept) >= access_rules_max:
            raise InvalidRule(_TOO_MANY)
        return AccessRules([*kept, validate_rule(rule)])

    def without_rule(self, from_: str, to: str) -> "AccessRules":
        """Return these rules without those from `from_` to `to`."""
        return AccessRules(r for r in self._rules if (r.from_, r.to) != (from_, to))


def _ordered(rules: Iterable[AccessRule]) -> list[AccessRule]:
    return sorted(rules, key=lambda rule: -rule.priority)
