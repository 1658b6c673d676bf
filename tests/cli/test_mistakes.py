"""Commands typed wrongly: each is answered with what to do instead."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_tree import CliRunner
from tests.cli.conftest import WIDE
from tests.cli.serve_process import ServeProcess, serving
from waypost.cli.app import app

pytestmark = pytest.mark.process

NOWHERE = "http://127.0.0.1:9"
LARGE = "x" * 5000

AS_AGENT = {
    "agents lst": "Did you mean 'list'?",
    "agents list": "--operator-token-file",
    "agents list --skill": "requires an argument",
    "agents list --skill python": "--sender SUBJECT",
    "agents list --skill two+words! --sender agent.web": "one word of lower-case letters",
    f"agents list --skill {LARGE} --sender agent.web": "at most 32 characters",
    "agents list --skill python --sender agent.other": "waypost keys new agent.other",
    "agents list --key none.key": "waypost keys new",
    "agents show agent.codr --sender agent.web": "check the spelling",
    "agents show agent,web --sender agent.web": "may only hold letters",
    "agents disconnect agent.web": "--operator-token-file",
    "context add here": "Missing argument 'URL'",
    "context add here there": "expected http://HOST:PORT",
    "context use nowhere": "waypost context add NAME URL",
    "keys new agent.web": "choose another file",
    "keys new agent..web": "a dot too many",
    "keys show agent.other": "waypost keys new",
    "keys rotat agent.web": "Did you mean 'rotate'?",
    "keys rotate": "waypost keys rotate agent.web",
    "keys rotate agent.other": "waypost keys new agent.other",
    "keys rotate agent.web --key none.key": "waypost keys new",
    f"keys rotate agent.web --url {NOWHERE}": "waypost serve",
    "keys unbind": "Missing argument 'SUBJECT'",
    "keys unbind agent.web": "--operator-token-file",
    "send agent.web {broken --sender agent.web": "--text",
    "send agent.web [1,2 --sender agent.web": "--text",
    "send agent.web 1 --sender agent.other": "waypost keys new agent.other",
    "send web 1 --sender agent.web": "did you mean agent.web?",
    "webhooks set agent.web": "Missing argument 'WEBHOOK_URL'",
    "webhooks set agent.web example.com": "write https://HOST",
    "webhooks set agent.web ftp://example.com/": "write https://HOST",
    "webhooks set agent.web https://me:secret@example.com/": "without a user name",
    "webhooks set agent.web https://example.com:0/": "write https://HOST",
    "webhooks set agent.web https://example.com/": "ask the operator to add it",
    "webhooks set agent.web https://10.0.0.7/": "webhooks.privateHosts of this relay",
    "webhooks set agent.web http://10.0.0.7/": "webhooks.privateHosts of this relay",
    "webhooks set agent.web http://example.com/": "a public host needs https://",
    "webhooks set agent.other https://example.com/": "waypost keys new agent.other",
    "webhooks test agent.web": "waypost webhooks set",
    "webhooks remove agent.web": "waypost webhooks set",
    "listen": "Missing argument 'SUBJECT'",
    "listen agent.other": "waypost keys new agent.other",
    "listen agent.web --exec no-such-command": "give its path",
    "listen agent.web --exec /etc/passwd": "not executable",
    "listen agent.web --exec 'unclosed": "quote its arguments",
    "listen agent.web --exec true --parallel 0": "greater than or equal to 1",
    "listen agent.web --exec true --no-ack": "the exit code decides",
    "listen agent.web --reply": "needs --exec CMD",
    f"listen agent.web --url {NOWHERE}": "waypost serve",
    "hook": "Missing argument 'SUBJECT'",
    "hook agent.other": "waypost keys new agent.other",
    "hook agent.web --settings vim": "give claude, codex, gemini",
    "hook agent.web --url somewhere": "expected http://HOST:PORT",
    "mcp": "--new does it for you",
    "mcp --subject agent.other": "waypost keys new agent.other",
    "mcp --new --key none.key": "not both",
    "mcp --new --shared": "not both",
    "mcp --subject agent.web --chanel": "--channel",
    "mcp --subject agent.web --channel --http 127.0.0.1:0": "without --http",
    "mcp --subject agent.web --skill Two!": "one word of lower-case letters",
    f"mcp --subject agent.web --description {LARGE}": "the limit is 1,000",
    "mcp --subject agent.web --url somewhere": "expected http://HOST:PORT",
    "top": "--operator-token-file",
    "top --operator-token-file none": "give the file operator-token",
    "tail": "works on local files, not on a URL",
    "tial": "Did you mean 'tail'?",
    "context remove nowhere": "waypost context add NAME URL",
    "context ad here": "Did you mean 'add'?",
    "ping --count 0": "greater than or equal to 1",
    f"ping --url {NOWHERE}": "waypost serve",
    "ping --url somewhere": "expected http://HOST:PORT",
}
AS_OPERATOR = {
    "agents disconnect agent.web": "waypost agents list",
    "agents show agent.codr": "has never connected",
    "keys unbind agent.codr": "waypost names list",
    "names bind agent.codr my-key": "waypost keys show",
    "webhooks test agent.codr": "waypost webhooks set",
    "agents release agent.codr": "check the spelling",
    "breakers reset agent.codr": "check the spelling",
    "dead-letters redrive nothing": "waypost dead-letters list",
    "scheduled cancel nothing": "waypost scheduled list",
    "rules remove agent.a agent.b": "waypost rules list",
    "names unbind agent.codr": "waypost names list",
}


ZERO_KEY = "A" * 43
ON_FILES = {
    "tail": "--data-dir",
    "tail --count 0": "greater than or equal to 1",
    "tail --data-dir data --agent agent..web": "a dot too many",
    "keys relay": "waypost serve",
    "verify": "--data-dir",
    "verify nowhere": "name the right one with --data-dir",
    "verify --since 2026-01-01": "waypost keys relay",
    "verify --public-key": "requires an argument",
    "verify --public-key none.key": "waypost keys relay",
    "verify --public-key random.key": "waypost keys relay",
    "verify --public-key .": "not a regular file",
    f"verify --public-key {ZERO_KEY}": "waypost keys relay",
    "verify --public-key KEY --since yesterday": "write 2026-05-01T09:00",
    "verify --public-key KEY --repair": "without --public-key",
    "cluster creat": "Did you mean 'create'?",
    "cluster status": "Missing argument 'CLUSTER'",
    "cluster status somewhere": "nats://HOST:4222,HOST:4222/NAME",
    "cluster status nats://127.0.0.1:9/relay": "check the addresses",
    "cluster create nats://127.0.0.1:9/a --partitions 0": "greater than or equal to 1",
    "cluster move nats://127.0.0.1:9/a x node": "should be a valid integer",
    "pipeline serv": "Did you mean 'serve'?",
    "pipeline serve --idle soon": "write 45s, 30m",
    "pipeline convert": "Missing option '--lake'",
    "pipeline run --journal data --lake lake --conf broken": "write spark.KEY=VALUE",
    "pipeline backtest --lake lake --settings none.json": "No such file or directory",
    "--instal-completion": "--install-completion",
}


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        user = running.user()
        user.create_keys("agent.web")
        user("send", "agent.web", "hello", "--sender", "agent.web")
        yield running


def answer(typed: str, environment: dict[str, str]) -> str:
    """Return what a command that must fail prints, without line breaks and frames."""
    result = CliRunner(env=environment).invoke(app, typed.split(" "), input="")
    assert isinstance(result.exception, SystemExit), f"{result.exception!r}: {result.output}"
    assert result.exit_code in (1, 2, 3, 4), result.output
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("typed", AS_AGENT)
def test_a_mistake_of_an_agent_is_answered_with_what_to_do(
    relay: ServeProcess, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert AS_AGENT[typed] in answer(typed, relay.user().environment)


@pytest.mark.parametrize("typed", AS_OPERATOR)
def test_a_mistake_of_the_operator_is_answered_with_what_to_do(
    relay: ServeProcess, typed: str
) -> None:
    assert AS_OPERATOR[typed] in answer(typed, relay.operator().environment)


@pytest.mark.parametrize("typed", ON_FILES)
def test_a_mistake_about_files_is_answered_with_what_to_do(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "journal").mkdir(parents=True)
    (tmp_path / "random.key").write_bytes(bytes(range(200)))
    environment = {**WIDE, "HOME": str(tmp_path), "WAYPOST_URL": ""}
    assert ON_FILES[typed] in answer(typed, environment)
