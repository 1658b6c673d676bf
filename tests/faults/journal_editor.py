"""An editor of journals who knows the format, and repairs what would give an edit away."""

import json
import re
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.faults import plain_journal
from waypost.server.identity.relay_key import RelayKey
from waypost.wire.handshake import checkpoint_text


def segments(directory: Path) -> list[Path]:
    """Return the segments of a copied journal, in order."""
    return sorted(path for path in directory.iterdir() if path.suffix in (".jsonl", ".open"))


def batches(path: Path) -> list[bytes]:
    """Return the batches of a segment."""
    content = path.read_bytes()
    return [content[start:end] for start, end, _ in plain_journal.batches(content)]


def write(path: Path, parts: list[bytes]) -> None:
    """Write a segment of these batches."""
    path.write_bytes(b"".join(parts))


def repaired(batch: bytes, **fields: Any) -> bytes:
    """Return a batch with the length and checksum of its lines, and other fields of its commit."""
    at = batch.rindex(b'{"kind":"commit"')
    lines = batch[:at]
    last = json.loads(lines.splitlines()[-1])
    commit = {**json.loads(batch[at:]), "bytes": len(lines), "crc": zlib.crc32(lines), **fields}
    commit["at_us"] = last["at_us"]
    return lines + json.dumps(commit, separators=(",", ":")).encode() + b"\n"


def rechain(directory: Path) -> None:
    """Compute every link again, from the first batch to the last."""
    prev = "0" * 64
    for path in segments(directory):
        parts = []
        for batch in batches(path):
            head = prev
            linked = re.sub(rb'"head":"\w+"', b'"head":"%b"' % head.encode(), batch)
            parts.append(repaired(linked, prev=head))
            prev = sha256(parts[-1]).hexdigest()
        write(path, parts)


def sign_again(directory: Path, signer: RelayKey) -> None:
    """Sign every checkpoint again, and compute the chain again."""
    for path in segments(directory):
        for number in range(len(batches(path))):
            rechain(directory)
            parts = batches(path)
            if b'"kind":"checkpoint"' not in parts[number]:
                continue
            line = json.loads(parts[number].splitlines()[0])
            line["key"] = signer.public_key
            line["signature"] = signer.sign(
                checkpoint_text(
                    public_key=line["key"], seq=line["seq"], at_us=line["at_us"], head=line["head"]
                )
            )
            _, *rest = parts[number].splitlines(keepends=True)
            parts[number] = (
                json.dumps(line, separators=(",", ":")).encode() + b"\n" + b"".join(rest)
            )
            parts[number] = repaired(parts[number])
            write(path, parts)
    rechain(directory)
