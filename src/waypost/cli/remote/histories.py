"""Histories of messages and threads from a served relay, as far as the caller may see them."""

from waypost.client.http import HttpClient, RemoteError, Token, path_segment
from waypost.relay.inspection.history import HistoryEntry, MessageHistory
from waypost.wire.history_bodies import MessageHistoryResponse, Thread
from waypost.wire.identifiers import validate_message_id, validate_thread


def remote_history(api: HttpClient, token: Token, message_id: str) -> MessageHistory:
    """Return the history of a message. Raises `RemoteError`."""
    path = f"/v1/messages/{path_segment(validate_message_id(message_id))}"
    try:
        found = api.get(path, MessageHistoryResponse, token=token)
    except RemoteError as problem:
        if problem.status != 404:
            raise
        raise RemoteError(
            f"no message {message_id} at {api.url}: it may be past its retention, or belong"
            " to another relay (--url) or another agent; rate-limited publishes get no id",
            404,
        ) from None
    steps = [HistoryEntry(s.at_us, s.seq, s.kind, s.endpoint, s.text) for s in found.steps]
    return MessageHistory(found.message_id, steps, found.thread)


def remote_thread(api: HttpClient, token: Token, thread: str) -> Thread:
    """Return the messages of a thread. Raises `RemoteError`."""
    try:
        return api.get(f"/v1/threads/{path_segment(validate_thread(thread))}", Thread, token=token)
    except RemoteError as problem:
        if problem.status != 404:
            raise
        raise RemoteError(
            f"no thread {thread} at {api.url}: it may be past its retention, or belong to another"
            " relay (--url) or to other agents",
            404,
        ) from None
