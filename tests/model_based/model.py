"""What callers of a relay should see, kept in plain lists: told only what they are told."""

from dataclasses import dataclass, field

from tests.faults.plain_journal import hash_of
from waypost import InvalidMessage, PublishResult, Reason, Rejection, Signal


@dataclass
class Letter:
    """One message in one mailbox. `until_us` is when its lease ends, 0 while it waits."""

    id: str
    sender: str
    ttl_ms: int
    until_us: int = 0
    not_before_us: int = 0

    def alive(self, now_us: int) -> bool:
        """Whether it must still be there: an expired one may be gone, unless it is leased."""
        return bool(self.until_us) or now_us // 1000 <= self.ttl_ms

    def ready(self, now_us: int) -> bool:
        """Whether it would be handed out now."""
        return not self.until_us and self.alive(now_us) and self.not_before_us <= now_us


@dataclass
class Model:
    """Mailboxes in order, dead letters, handlers, and first results by sender and chosen id."""

    registered: dict[str, None] = field(default_factory=dict)
    boxes: dict[str, list[Letter]] = field(default_factory=dict)
    dead: dict[str, dict[str, Letter]] = field(default_factory=dict)
    handlers: dict[int, tuple[str, bool]] = field(default_factory=dict)
    handled: list[tuple[str, str]] = field(default_factory=list)
    first: dict[tuple[str, str], tuple[int, PublishResult]] = field(default_factory=dict)
    evicted: list[tuple[str, str]] = field(default_factory=list)

    def box(self, endpoint: str) -> list[Letter]:
        return self.boxes.setdefault(endpoint, [])

    def targets(self, subject: str) -> list[str]:
        """Registered endpoints that a publish to `subject` is for."""
        return [one for one in self.registered if covers(subject, one)]

    def find(self, endpoint: str, message_id: str) -> Letter | None:
        return next((one for one in self.box(endpoint) if one.id == message_id), None)

    def published(self, result: PublishResult, subject: str, sender: str, ttl_ms: int) -> None:
        """A publish returned."""
        rejected = {one.endpoint_hash: one for one in result.rejected}
        if not result.message_id:
            assert list(rejected) == [""], result
            return
        targets = self.targets(subject)
        assert len(targets) == result.delivered_to + len(rejected), result
        for endpoint in targets:
            self._arrived(endpoint, Letter(result.message_id, sender, ttl_ms), rejected)

    def _arrived(self, endpoint: str, letter: Letter, rejected: dict[str, Rejection]) -> None:
        rejection = rejected.get(hash_of(endpoint))
        if rejection is None:
            self.box(endpoint).append(letter)
            self.dead.get(endpoint, {}).pop(letter.id, None)
        elif rejection.reason is Reason.BUDGET_EXCEEDED:
            self.dead.setdefault(endpoint, {})[letter.id] = letter

    def expected_again(
        self, sender: str, message_id: str, subject: str, now_us: int, window_us: int
    ) -> PublishResult | None:
        """What a sender's second publish under one id must give, or None if it is as good as new.

        Raises `InvalidMessage` if the relay must.
        """
        known = self.first.get((sender, message_id))
        if known is not None and known[0] >= now_us - window_us and known[1].delivered_to:
            return known[1]
        targets = self.targets(subject)
        live = [self.find(one, message_id) for one in targets]
        dead = [self.dead.get(one, {}).get(message_id) for one in targets]
        if any(letter is not None and letter.sender != sender for letter in live + dead):
            raise InvalidMessage(f"message id {message_id} is taken: choose another")
        holders = sum(letter is not None for letter in live)
        return PublishResult(message_id=message_id, delivered_to=holders) if holders else None

    def leased(self, endpoint: str, ids: list[str], limit: int, now_us: int, until_us: int) -> None:
        """Messages were handed out: the first that are ready, in order."""
        ready = [one for one in self.box(endpoint) if one.ready(now_us)]
        assert ids == [one.id for one in ready[:limit]]
        for letter in ready[:limit]:
            letter.until_us = until_us

    def acked(self, endpoint: str, ids: list[str]) -> int:
        """Give how many of `ids` there were."""
        before = self.box(endpoint)
        self.boxes[endpoint] = [one for one in before if one.id not in ids]
        return len(before) - len(self.boxes[endpoint])

    def nacked(self, endpoint: str, ids: list[str], not_before_us: int) -> int:
        found = [one for one in self.box(endpoint) if one.id in ids and one.until_us]
        for letter in found:
            letter.until_us, letter.not_before_us = 0, not_before_us
        return len(found)

    def signalled(self, subject: str, signal: Signal) -> None:
        """A sender was told something; an eviction is the one thing the model must know.

        It may be about a message whose own publish has not returned yet.
        """
        if signal.state == "evicted":
            self.evicted.append((signal.endpoint_subject, signal.data["message_id"]))

    def bury(self, endpoint: str, message_id: str) -> None:
        letter = self.find(endpoint, message_id)
        assert letter is not None
        self.box(endpoint).remove(letter)
        letter.until_us = letter.not_before_us = 0
        self.dead.setdefault(endpoint, {})[message_id] = letter

    def redriven(self, endpoint: str, message_id: str) -> None:
        self.box(endpoint).append(self.dead[endpoint].pop(message_id))

    def settle(self, now_us: int) -> None:
        """Leases past their deadline come back, old mail goes, handlers take what is ready."""
        while self.evicted:
            self.bury(*self.evicted.pop())
        for endpoint, box in self.boxes.items():
            for letter in box:
                if letter.until_us and letter.until_us <= now_us:
                    letter.until_us = letter.not_before_us = 0
            box[:] = [letter for letter in box if letter.alive(now_us)]
            fates = [
                fails for pattern, fails in self.handlers.values() if covers(pattern, endpoint)
            ]
            if fates and endpoint in self.registered:
                self._handle(endpoint, now_us, any(fates))

    def _handle(self, endpoint: str, now_us: int, fails: bool) -> None:
        for letter in [one for one in self.box(endpoint) if one.ready(now_us)]:
            self.handled.append((endpoint, letter.id))
            if fails:
                self.bury(endpoint, letter.id)
            else:
                self.box(endpoint).remove(letter)

    def restarted(self) -> None:
        """Handlers are gone, leases come back."""
        self.handlers.clear()
        for box in self.boxes.values():
            for letter in box:
                if letter.until_us:
                    letter.until_us = letter.not_before_us = 0


def covers(pattern: str, subject: str) -> bool:
    """Whether `pattern` is about `subject`."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1] + given[len(wanted) - 1 :]
        if len(given) < len(pattern.split(".")):
            return False
    return len(wanted) == len(given) and all(
        one in ("*", other) for one, other in zip(wanted, given, strict=True)
    )
