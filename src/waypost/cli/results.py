"""A publish result as the command line tells it: names instead of hashes, with advice."""

from collections.abc import Iterable

from waypost.cli.advice import advice
from waypost.cli.facts import RejectionAdvice, Sent
from waypost.policy.reasons import Reason
from waypost.relay.data_dir import endpoint_hash
from waypost.wire.results import PublishResult, Rejection


def sent_of(subject: str, result: PublishResult, names: Iterable[str]) -> Sent:
    """What became of a message to `subject`; `names` are endpoints it may have gone to."""
    by_hash = {endpoint_hash(name): name for name in names}
    rejections = [
        RejectionAdvice(
            endpoint=by_hash.get(one.endpoint_hash, one.endpoint_hash),
            reason=one.reason,
            detail=one.detail,
            advice=advice(one.reason, result.retry_after_ms),
        )
        for one in result.rejected
    ]
    return Sent(subject, result.message_id, result.delivered_to, rejections, result.retry_after_ms)


def denied(problem: Exception) -> PublishResult:
    """Access rules that leave nothing of a publish, as the result that it is."""
    rejection = Rejection("", Reason.ACCESS_DENIED, str(problem))
    return PublishResult(message_id="", delivered_to=0, rejected=[rejection])
