"""Shows that a journal is whole and unchanged: its chain, and the relay's signatures.

Works on the segments alone, of a data directory or of a copy of its journal. A signature confirms
every batch before it, so a change is found unless it is made after the last signature. The end can
be cut off at any signature: what shows that nothing is missing there is the time of the last one.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from waypost.policy.errors import InvalidInput
from waypost.relay.errors import DataDirUnusable
from waypost.relay.journal.segments import bodies_path
from waypost.relay.verify.findings import Finding, Outcome, Part
from waypost.relay.verify.journal_check import JournalScan, OnSegment
from waypost.wire.events import SignedCheckpoint
from waypost.wire.handshake import SIGNATURE_BYTES, checkpoint_text, from_text, signing_key_from

IsSignedBy = Callable[[bytes, bytes, bytes], bool]
"""Returns whether the key of the first argument made the signature of the second for the third."""


class ArchivePeriod(msgspec.Struct, frozen=True):
    """The time (µs) for which a journal has to be shown to be unchanged; 0 is no bound."""

    since_us: int = 0
    until_us: int = 0


class ArchiveReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a journal, what its signatures confirm, and what is wrong.

    Events `first_seq` to `last_seq` were read, from `first_us` to `last_us`. The chain begins with
    the event `chained_from`, 0 if there is none. `checkpoints` are signatures by `public_keys`; the
    last one was made at `signed_us` and confirms the events up to `signed_seq`. `batches_after`
    were written after it.
    """

    directory: str
    public_keys: list[str]
    segments: int
    batches: int
    first_seq: int
    last_seq: int
    first_us: int
    last_us: int
    chained_from: int
    checkpoints: int
    signed_seq: int
    signed_us: int
    batches_after: int
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether the journal is whole and unchanged up to its last signature."""
        return not self.findings


def verify_archive(
    directory: Path,
    public_keys: Collection[str],
    is_signed_by: IsSignedBy,
    period: ArchivePeriod,
    on_segment: OnSegment = lambda done, total: None,
) -> ArchiveReport:
    """Check the segments in `directory` against the relay's public keys. Changes nothing.

    Raises `DataDirUnusable` if there is no segment, and `InvalidInput` for what is no key.
    """
    keys = {key: signing_key_from(key) for key in public_keys}
    if (directory / "journal").is_dir():
        directory /= "journal"
    archive = _Archive(directory, keys, is_signed_by, period)
    if not archive.scan.segments:
        raise DataDirUnusable(
            f"{directory} has no journal segments: give a data directory, or a copy of its journal/"
        )
    archive.scan.run(on_segment)
    return archive.report()


class _Archive:
    """One pass over an archived journal."""

    def __init__(
        self,
        directory: Path,
        keys: dict[str, bytes],
        is_signed_by: IsSignedBy,
        period: ArchivePeriod,
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._is_signed_by = is_signed_by
        self._period = period
        self._batch_ends: list[int] = []
        self.scan = JournalScan(
            directory,
            lambda batch, state: self._batch_ends.append(batch.commit.seq),
            period.since_us,
        )

    def report(self) -> ArchiveReport:
        """Return what was found; call it after the scan has run."""
        scan = self.scan
        signed = [one for one in scan.checkpoints if self._problem_with(one) is None]
        last = signed[-1] if signed else None
        findings = [*self._changes(), *self._signatures(last), *self._bounds(last)]
        return ArchiveReport(
            directory=str(self._directory),
            public_keys=list(self._keys),
            segments=len(scan.segments),
            batches=scan.chain.batches,
            first_seq=scan.starts_at_seq,
            last_seq=scan.state.seq,
            first_us=scan.oldest_us,
            last_us=scan.state.at_us,
            chained_from=scan.chain.chained_from,
            checkpoints=len(signed),
            signed_seq=last.seq - 1 if last else 0,
            signed_us=last.at_us if last else 0,
            batches_after=sum(end > last.seq for end in self._batch_ends) if last else 0,
            findings=[Finding(Part.JOURNAL, *one, Outcome.LOST) for one in findings],
        )

    def _changes(self) -> Iterator[tuple[str, str]]:
        """Yield the location and description of what is damaged, missing or changed."""
        scan = self.scan
        for gap in scan.gaps:
            if gap.torn and gap.damage is not None:
                text = f"bytes {gap.damage.start:,} to {gap.damage.end:,} are not a complete batch"
                yield gap.segment, f"{text}; if a relay is writing them, run this again"
            elif gap.damage is not None:
                text = f"bytes {gap.damage.start:,} to {gap.damage.end:,} are damaged"
                yield gap.segment, f"{text}: compare with another copy"
            else:
                yield gap.segment, f"events from {gap.first_seq:,} on are missing before it"
        for problem in scan.misnumbered:
            yield "numbers", problem
        for link in scan.chain.broken:
            yield scan.segments[link.segment].name, str(link)
        for changed in scan.changed_bodies:
            yield bodies_path(self._directory, changed.segment).name, str(changed)

    def _signatures(self, last: SignedCheckpoint | None) -> Iterator[tuple[str, str]]:
        for one in self.scan.checkpoints:
            problem = self._problem_with(one)
            if problem is not None:
                yield "signatures", f"the checkpoint of event {one.seq:,} {problem}"
        if last is None:
            keys = " or ".join(self._keys)
            yield "signatures", f"no checkpoint is signed by {keys}: nothing shows who wrote this"

    def _problem_with(self, one: SignedCheckpoint) -> str | None:
        key = self._keys.get(one.key)
        if key is None:
            return f"is signed by another key: {one.key[:64]}"
        text = checkpoint_text(public_key=one.key, seq=one.seq, at_us=one.at_us, head=one.head)
        try:
            signature = from_text(one.signature, SIGNATURE_BYTES)
        except InvalidInput:
            return "has no signature"
        if not self._is_signed_by(key, signature, text):
            return "has a signature that its key did not make"
        return None

    def _bounds(self, last: SignedCheckpoint | None) -> Iterator[tuple[str, str]]:
        """Yield what is missing at the beginning or the end of the period."""
        scan, since_us = self.scan, self._period.since_us
        begins = scan.starts_at_seq
        if since_us and begins > 1 and not scan.has_earlier and scan.oldest_us > since_us:
            yield "beginning", f"the journal begins with event {begins:,}, later than asked for"
        chain = scan.chain
        unchained = chain.chained_from > begins and chain.chained_us > since_us > 0
        if unchained or not chain.chained_from:
            yield "beginning", "events of an older version are not chained: they may be changed"
        if last is not None and last.at_us < self._period.until_us:
            yield "end", "the last signature is earlier than asked for: the end may be missing"
