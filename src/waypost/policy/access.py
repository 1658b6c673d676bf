"""Access rules: which sender may reach which endpoint.

Rule 1  Highest priority first; among equals, the one added first. The first match decides.
Rule 2  No match means allowed: rules take away, they do not have to be written to begin.

This module does not know where rules are kept. A rules file that cannot be read is the relay's
concern, and there it denies everything.
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
    """The rule that decided, if any did."""

    allowed: bool
    matched_rule: AccessRule | None = None


_ALLOWED = AccessResult(True)
_TOO_MANY = f"no more than {access_rules_max} access rules are kept"
DENY_ALL = (AccessRule(">", ">", "deny"),)


def parse_rules(raw: bytes) -> list[AccessRule]:
    """Rules from a JSON array; raises `InvalidRule` when one entry cannot be taken."""
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
    """An ordered set of rules; values in, verdicts out."""

    def __init__(self, rules: Iterable[AccessRule] = ()) -> None:
        self._rules = _ordered(rules)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def check_access(self, from_: str, to: str) -> AccessResult:
        """Whether the sender `from_` may reach the endpoint `to`, and by which rule."""
        for rule in self._rules:
            if matches_pattern(from_, rule.from_) and matches_pattern(to, rule.to):
                return AccessResult(rule.action == "allow", rule)
        return _ALLOWED

    def list_rules(self) -> list[AccessRule]:
        """The rules in the order in which they are tried."""
        return list(self._rules)

    def with_rule(self, rule: AccessRule) -> "AccessRules":
        """These rules and `rule`, which replaces one with the same `from_` and `to`."""
        kept = self.without_rule(rule.from_, rule.to)._rules
        if len(kept) >= access_rules_max:
            raise InvalidRule(_TOO_MANY)
        return AccessRules([*kept, validate_rule(rule)])

    def without_rule(self, from_: str, to: str) -> "AccessRules":
        """These rules without those from `from_` to `to`."""
        return AccessRules(r for r in self._rules if (r.from_, r.to) != (from_, to))


def _ordered(rules: Iterable[AccessRule]) -> list[AccessRule]:
    return sorted(rules, key=lambda rule: -rule.priority)
