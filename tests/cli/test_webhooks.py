"""`waypost webhooks`, and the client's way to read a notice."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.serve_process import ServeProcess, User, serving
from tests.eventually import eventually_blocking
from waypost import InvalidInput
from waypost.client import Identity
from waypost.client.http import HttpClient
from waypost.client.webhooks import OwnWebhook, ReceivedNotice, read_notice

pytestmark = pytest.mark.process

Posts = list[tuple[dict[str, str], bytes]]


@contextmanager
def receiving() -> Iterator[tuple[int, Posts]]:
    """Run a plain HTTP server that keeps what is posted to it."""
    posts: Posts = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.append((dict(self.headers.items()), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], posts
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServeProcess]:
    """A relay that allows webhooks to this machine."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    hosts = {"webhooks": {"privateHosts": ["127.0.0.1:*"]}}
    (data / "config.json").write_text(json.dumps(hosts))
    with serving(tmp_path) as one:
        yield one


@pytest.fixture
def user(served: ServeProcess) -> User:
    user = served.user()
    user("keys", "new", "agent.idle")
    return user


def test_a_webhook_is_set_tested_woken_shown_and_removed(served: ServeProcess, user: User) -> None:
    with receiving() as (port, posts):
        url = f"http://127.0.0.1:{port}/wake"
        printed = user("webhooks", "set", "agent.idle", url)
        assert f"agent.idle: notices go to {url}" in printed.stdout
        secret = printed.stdout.split("secret: ")[1].split()[0]
        assert secret.startswith("whsec_")
        assert "not shown again" in printed.stderr
        assert "accepted (200)" in user("webhooks", "test", "agent.idle").stdout
        user("send", "agent.idle", "42")
        eventually_blocking(lambda: len(posts) == 2, "the notice")
        headers, body = posts[1]
        notice = read_notice(secret, headers, body)
        assert isinstance(notice, ReceivedNotice)
        assert (notice.type, notice.data.waiting) == ("messages.waiting", 1)
        assert notice.id.startswith("msg_")
        eventually_blocking(
            lambda: "accepted (200)" in user("webhooks", "show", "agent.idle").stdout, "the outcome"
        )
        assert secret not in served.operator()("webhooks", "show", "agent.idle", "--json").stdout
        user("webhooks", "remove", "agent.idle")
        missing = user("webhooks", "show", "agent.idle", exits=1).stderr
        assert "agent.idle has no webhook; 'waypost webhooks set' sets one" in missing


def test_the_client_sets_a_webhook_with_messages(served: ServeProcess, user: User) -> None:
    identity = Identity.load(served.home / ".config" / "waypost" / "agent.idle.key")
    with receiving() as (port, posts), closing(HttpClient(served.url)) as api:
        webhooks = OwnWebhook.of(api, identity)
        secret = webhooks.set(f"http://127.0.0.1:{port}/", "messages").secret
        user("send", "agent.idle", '{"n": 1}')
        eventually_blocking(lambda: posts, "the notice")
        headers, body = posts[0]
        [message] = read_notice(secret, headers, body).data.messages
        assert message["payload"] == {"n": 1}
        with pytest.raises(InvalidInput, match="not signed with this secret"):
            read_notice(secret[:-4] + "AAA=", headers, body)
        with pytest.raises(InvalidInput, match="not signed"):
            read_notice(secret, headers, body + b" ")
        with pytest.raises(InvalidInput, match="not signed"):
            read_notice(secret, {}, body)
        with pytest.raises(InvalidInput, match="it is old"):
            read_notice(secret, headers, body, now_s=float(headers["webhook-timestamp"]) + 301)
        for nonsense in ("", "whsec_", "whsec_AAAA", "whsec_ü"):
            with pytest.raises(InvalidInput, match="24 bytes or more"):
                read_notice(nonsense, headers, body)
        assert webhooks.show().content == "messages"
        assert webhooks.remove().url == f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize(
    ("arguments", "exits", "text"),
    [
        (("set", "agent.idle", "hooks.example.com"), 2, "write https://HOST"),
        (("set", "agent.idle", "https://hooks.example.com/"), 1, "ask the operator to add it"),
        (("set", "agent.other", "https://hooks.example.com/"), 1, "no keys of agent.other"),
        (("test", "agent.idle"), 1, "has no webhook"),
        (("show", "agent..x"), 2, "invalid subject"),
    ],
)
def test_mistakes_are_answered_with_what_to_do(
    user: User, arguments: tuple[str, ...], exits: int, text: str
) -> None:
    assert text in user("webhooks", *arguments, exits=exits).stderr.replace("\n", " ")


def test_a_failed_test_exits_with_1(user: User) -> None:
    with receiving() as (port, _):
        pass
    user("webhooks", "set", "agent.idle", f"http://127.0.0.1:{port}/")
    failed = user("webhooks", "test", "agent.idle", exits=1).stderr
    assert "was not accepted: no connection" in failed


def test_a_data_directory_has_no_webhooks(waypost: CommandLine) -> None:
    assert "use its URL (--url)" in waypost("webhooks", "show", "agent.a", exits=1).stderr
