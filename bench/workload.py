"""The messages that every peer carries: 1,000 different tasks of exactly 512 bytes of JSON."""

import json

PAYLOAD_BYTES = 512
PAYLOAD_VARIANTS = 1000


def make_payload(index: int) -> dict[str, object]:
    """Return a task message of exactly 512 bytes as compact JSON, determined by `index`."""
    payload: dict[str, object] = {
        "type": "task.assigned",
        "task": f"task-{index:08d}",
        "attempt": index % 5,
        "priority": (index * 7) % 10,
        "tags": ["billing", "refund", f"shard-{index % 16:02d}"],
        "body": "",
    }
    filler = f"Refund order {index * 7919 % 1_000_003:06d} and tell the customer why. "
    missing = PAYLOAD_BYTES - len(encode_payload(payload))
    payload["body"] = (filler * (missing // len(filler) + 1))[:missing]
    return payload


def encode_payload(payload: dict[str, object]) -> bytes:
    """Encode as compact JSON."""
    return json.dumps(payload, separators=(",", ":")).encode()


def make_encoded_payloads() -> list[bytes]:
    """Return 1000 different encoded payloads, for peers that carry bytes.

    Their time to encode is not measured.
    """
    return [encode_payload(make_payload(index)) for index in range(PAYLOAD_VARIANTS)]
