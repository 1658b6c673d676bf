"""The access rules of a data directory. A relay that runs there takes over what is written."""

from waypost.policy.access import AccessRule
from waypost.relay.config.access_file import AccessFile
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import RelayError
from waypost.wire.http_bodies import RuleList


def list_rules(data: DataDir) -> RuleList:
    """In the order in which they are tried."""
    return _told(AccessFile(data))


def add_rule(data: DataDir, rule: AccessRule) -> RuleList:
    """Add a rule, in place of one with the same patterns."""
    access = AccessFile(data)
    access.add_rule(rule)
    return _told(access)


def remove_rule(data: DataDir, from_: str, to: str) -> RuleList:
    """Remove a rule; `RelayError` if there is no such rule."""
    access = AccessFile(data)
    known = {(rule.from_, rule.to) for rule in access.list_rules()}
    if not access.problem and (from_, to) not in known:
        raise RelayError("there is no such rule: 'waypost rules list' shows those there are")
    access.remove_rule(from_, to)
    return _told(access)


def _told(access: AccessFile) -> RuleList:
    return RuleList(rules=[] if access.problem else access.list_rules(), problem=access.problem)
