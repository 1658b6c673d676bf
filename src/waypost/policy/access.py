"""Access rules: which sender may publish to which endpoint.

Rule 1  The first matching rule decides: highest priority first, then the order of addition.
Rule 2  Without a matching rule, access is allowed: rules restrict, and none is needed to start.
Rule 3  A rule that names a key matches only senders with that key, whatever their names are.
Rule 4  Patterns, key and priority identify a rule: those of one pair with different priorities are
        different rules.

This module does not know where rules are stored. An unreadable rules file is the relay's concern,
which then denies everything.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from waypost.policy.bounds import access_rules_max, number_max
from waypost.policy.errors import InvalidRule, InvalidSubject
from waypost.policy.subject_index import SubjectIndex
from waypost.policy.subjects import validate_pattern

Priority = Annotated[int, msgspec.Meta(ge=-number_max, le=number_max)]


class AccessRule(
    msgspec.Struct,
    frozen=True,
    rename={"from_": "from", "from_key": "fromKey"},
    forbid_unknown_fields=True,
):
    """`from_` and `to` are patterns over senders and endpoints.

    With `from_key`, a public key as base64url, the rule matches only senders that authenticated
    with that key; in an embedded relay, which authenticates no one, it matches none.
    """

    from_: str
    to: str
    action: Literal["allow", "deny"]
    priority: Priority = 0
    from_key: str | UnsetType = UNSET


class AccessResult(msgspec.Struct, frozen=True):
    """The decision, and the rule that made it, if any."""

    allowed: bool
    matched_rule: AccessRule | None = None


_ALLOWED = AccessResult(True)
_is_key = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]").fullmatch
"""32 bytes as unpadded base64url, in the one spelling that counts."""
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
        if checked.from_key is not UNSET and not _is_key(checked.from_key):
            raise InvalidRule(
                "invalid access rule: 'fromKey' must be a public key as base64url, as shown by"
                " 'waypost keys show'"
            )
    except (msgspec.ValidationError, TypeError, InvalidSubject) as problem:
        raise InvalidRule(f"invalid access rule: {problem}") from None
    return checked


class AccessRules:
    """An ordered, immutable list of rules."""

    def __init__(self, rules: Iterable[AccessRule] = ()) -> None:
        self._rules = _ordered(rules)
        self.name_keys = any(rule.from_key is not UNSET for rule in self._rules)
        """Whether a decision needs the sender's key."""
        self._by_sender: SubjectIndex[SubjectIndex[tuple[int, AccessRule]]] = SubjectIndex()
        """The rules with their places, by patterns of senders, then of endpoints."""
        by_endpoint: dict[str, SubjectIndex[tuple[int, AccessRule]]] = {}
        for place, rule in enumerate(self._rules):
            if rule.from_ not in by_endpoint:
                by_endpoint[rule.from_] = SubjectIndex()
                self._by_sender.add(rule.from_, by_endpoint[rule.from_])
            by_endpoint[rule.from_].add(rule.to, (place, rule))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def check_access(self, from_: str, to: str, key: str | None = None) -> AccessResult:
        """Return whether the sender `from_` may publish to `to`, and by which rule.

        `key` is the public key of the sender, None if it has none.
        """
        first, decisive = len(self._rules), None
        for by_endpoint in self._by_sender.matching(from_):
            for place, rule in by_endpoint.matching(to):
                if place < first and rule.from_key in (UNSET, key):
                    first, decisive = place, rule
        return _ALLOWED if decisive is None else AccessResult(decisive.action == "allow", decisive)

    def list_rules(self) -> list[AccessRule]:
        """Return the rules in the order in which they are tried."""
        return list(self._rules)

    def with_rule(self, rule: AccessRule) -> "AccessRules":
        """Return these rules with `rule`; it replaces one with the same identity."""
        key = _identity(rule)
        kept = [one for one in self._rules if _identity(one) != key]
        if len(kept) >= access_rules_max:
            raise InvalidRule(_TOO_MANY)
        return AccessRules([*kept, validate_rule(rule)])

    def without_rule(
        self, from_: str, to: str, from_key: str | None = None, priority: int | None = None
    ) -> "AccessRules":
        """Return these rules without those with these patterns and this key, or no key.

        With `priority`, only the rule with that priority is left out.
        """
        key = UNSET if from_key is None else from_key
        return AccessRules(
            rule
            for rule in self._rules
            if _identity(rule) != (from_, to, key, rule.priority if priority is None else priority)
        )


def _identity(rule: AccessRule) -> tuple[str, str, str | UnsetType, int]:
    return rule.from_, rule.to, rule.from_key, rule.priority


def _ordered(rules: Iterable[AccessRule]) -> list[AccessRule]:
    return sorted(rules, key=lambda rule: -rule.priority)
