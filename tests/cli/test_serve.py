"""`waypost serve`: start, greeting, errors and stop."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.certificates import write_certificate
from tests.cli.conftest import UNSET, CommandLine
from tests.cli.serve_process import ServeProcess, User, serving

pytestmark = pytest.mark.process

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


def test_the_greeting_has_the_url_and_the_next_steps(relay: ServeProcess) -> None:
    assert relay.output.startswith(f"Waypost serves {relay.data} at {relay.url}\n")
    assert f"\nDashboard  {relay.url}/\n" in relay.output
    assert f"WAYPOST_OPERATOR_TOKEN_FILE={relay.operator_token_file}\n" in relay.output
    assert Path(relay.operator_token_file).stat().st_mode & 0o077 == 0


def test_the_greeting_and_keys_relay_name_the_key_that_signs_the_journal(tmp_path: Path) -> None:
    waypost = CommandLine(tmp_path / "data")
    assert "'waypost serve' creates it" in waypost("keys", "relay", exits=1).stderr
    with serving(tmp_path) as relay:
        relay.user()("send", "agent.a", "1")
        key = waypost("keys", "relay").stdout.strip()
        assert f"\nPublic key {key} (signs the journal)\n" in relay.output
        assert (relay.data / "relay-key").stat().st_mode & 0o077 == 0
        assert relay.end(signal.SIGTERM) == 0
    report = waypost.json("verify", "--public-key", key)
    assert (report["ok"], report["checkpoints"], report["batches_after"]) == (True, 1, 0)
    (relay.data / "relay-key").write_text("too short")
    assert "delete it and restart" in waypost("keys", "relay", exits=1).stderr


@pytest.mark.parametrize("options", [(), ("--no-anonymous",)])
def test_the_commands_of_the_greeting_work(tmp_path: Path, options: tuple[str, ...]) -> None:
    waypost = tmp_path / "waypost"
    waypost.write_text(f'#!/bin/sh\nexec {sys.executable} -m waypost "$@"\n')
    waypost.chmod(0o700)
    path = f"{tmp_path}:{os.environ['PATH']}"
    with serving(tmp_path, *options) as relay:
        stdin = "".join(line for line in relay.output.splitlines(True) if line.startswith("  "))
        done = subprocess.run(
            ["sh", "-ec", stdin],
            env={**os.environ, **UNSET, "HOME": str(tmp_path), "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "delivered to agent.hello" in done.stdout
    assert '{"text":"hi"}' in done.stdout
    assert "served, 0 agents connected" in done.stdout


def test_the_greeting_is_short_on_an_existing_directory(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        pass
    with serving(tmp_path) as second:
        assert second.output.splitlines() == [
            f"Waypost serves {second.data} at {second.url}",
            f"Dashboard  {second.url}/",
            "Stop with Ctrl-C; nothing is lost.",
        ]
    assert len(first.output) > len(second.output)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_relay_in_order(tmp_path: Path, how: signal.Signals) -> None:
    with serving(tmp_path) as relay:
        relay.user()("send", "agent.a", "1", "--id", "kept")
        assert relay.end(how) == 0
        assert '"message":"stopped"' in relay.log
        assert "Traceback" not in relay.log
    waypost = CommandLine(relay.data)
    assert waypost.json("verify")["ok"]
    assert [one["id"] for one in waypost.json("inbox", "agent.a")["messages"]] == ["kept"]


def test_connected_agents_do_not_prevent_a_stop(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        user = relay.user()
        user.create_keys("agent.a")
        listener = user.start_command("listen", "agent.a")
        assert listener.stderr is not None
        assert "listening as agent.a" in listener.stderr.readline()
        assert relay.end() == 0
        listener.terminate()
        listener.communicate(timeout=60)
        assert listener.returncode == 0


def test_a_second_relay_on_one_directory_is_rejected_in_one_sentence(
    relay: ServeProcess, shell: Shell
) -> None:
    second = shell("serve", "--port", "0", data=relay.data)
    assert second.returncode == 1
    assert f"is in use by another process (pid {relay.process.pid})" in second.stderr
    assert second.stderr.startswith("waypost: ")
    assert second.stderr.count("\n") == 1
    assert second.stdout == ""
    relay.user()("send", "agent.a", "1")


def test_a_port_in_use_is_one_sentence(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell("serve", "--port", str(port))
    assert done.returncode == 1
    assert f"waypost: cannot listen on 127.0.0.1 port {port}: address already in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_of_another_machine_is_one_sentence(shell: Shell) -> None:
    done = shell("serve", "--host", "192.0.2.1", "--port", "0", "--log-format", "text")
    assert done.returncode == 1
    assert "cannot listen on 192.0.2.1 port 0: this machine has no such address" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_that_cannot_be_created_is_one_sentence(shell: Shell, data: Path) -> None:
    data.write_text("in the way")
    done = shell("serve", "--port", "0")
    assert done.returncode == 1
    assert done.stderr.startswith(f"waypost: cannot use {data}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    [
        ("missing.pem", "key.pem", "cannot read"),
        ("cert.pem", "missing.pem", "cannot read"),
        ("key.pem", "cert.pem", "are not a PEM certificate and its private key"),
        ("cert.pem", "locked.pem", "is encrypted"),
        ("cert.pem", "exposed.pem", "run: chmod 600"),
        ("cert.pem", "pipe", "not a regular file"),
    ],
)
def test_an_unusable_certificate_is_one_sentence(
    tmp_path: Path, waypost: CommandLine, certificate: str, key: str, problem: str
) -> None:
    write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    write_certificate(tmp_path / "other.pem", tmp_path / "locked.pem", password=b"secret")
    (tmp_path / "exposed.pem").write_bytes((tmp_path / "key.pem").read_bytes())
    (tmp_path / "exposed.pem").chmod(0o644)
    os.mkfifo(tmp_path / "pipe", 0o600)
    files = ("--tls-cert", str(tmp_path / certificate), "--tls-key", str(tmp_path / key))
    result = waypost("serve", *files, exits=2 if "encrypted" in problem else 1)
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1
    assert not waypost.data.exists()


def test_a_certificate_without_its_key_is_an_input_error(waypost: CommandLine) -> None:
    assert (
        "give both --tls-cert and --tls-key"
        in waypost("serve", "--tls-cert", "cert.pem", exits=2).stderr
    )


def test_a_missing_extra_is_reported_with_the_command_to_install_it() -> None:
    script = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'uvicorn' else real(name, *more)\n"
        "sys.argv = ['waypost', 'serve']\n"
        "from waypost.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("waypost: 'waypost serve' needs uvicorn")
    assert "pip install 'waypost[server]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_with_a_certificate_it_serves_tls_to_clients_that_trust_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    with serving(tmp_path, "--tls-cert", str(certificate), "--tls-key", str(key)) as relay:
        assert relay.url.startswith("https://127.0.0.1:")
        user = relay.user()
        user.create_keys("agent.a", "agent.b")
        stranger = user("send", "agent.a", "1", exits=1)
        assert "cannot be trusted" in stranger.stderr
        assert "SSL_CERT_FILE" in stranger.stderr
        plain = User(relay.url.replace("https", "http"), tmp_path)
        assert "https:// instead" in plain("send", "agent.a", "1", exits=1).stderr
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        user("send", "agent.a", "1", "--sender", "agent.b", "--id", "private")
        assert user.json("listen", "agent.a", "--count", "1")["id"] == "private"


def test_the_operator_names_the_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_ORIGIN", "127.0.0.1, https://relay.example")
    with serving(tmp_path) as relay:
        relay.user()("send", "agent.a", "1")
        host = relay.url.removeprefix("http://")
        assert f"for {host}, relay.example:443" in relay.log
        other = User(relay.url.replace("127.0.0.1", "localhost"), tmp_path)
        error = other("send", "agent.a", "1", exits=1).stderr
        assert "start it with --origin localhost:" in error


@pytest.mark.parametrize(
    ("option", "value"), [("--origin", "https://relay.example/x"), ("--trusted-proxy", "proxy")]
)
def test_a_malformed_name_or_proxy_is_an_input_error(
    waypost: CommandLine, option: str, value: str
) -> None:
    assert f"{option} takes" in waypost("serve", option, value, exits=2).stderr
    assert not waypost.data.exists()


def test_a_public_address_without_a_certificate_logs_a_warning(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0") as relay:
        [warning] = [line for line in relay.log.splitlines() if '"level":"warning"' in line]
        assert "without TLS" in warning
        assert "--tls-cert" in warning


def test_a_loopback_address_logs_no_warning(relay: ServeProcess) -> None:
    assert '"warning"' not in relay.log


@pytest.mark.parametrize(("form", "begins"), [("json", '{"time":'), ("text", "20")])
def test_the_log_has_the_chosen_format(tmp_path: Path, form: str, begins: str) -> None:
    with serving(tmp_path, "--log-format", form) as relay:
        assert relay.end() == 0
        lines = relay.log.splitlines()
        assert lines
        assert all(line.startswith(begins) for line in lines)


def test_the_storage_of_the_directory_is_kept(tmp_path: Path) -> None:
    with serving(tmp_path, "--storage", "journal") as relay:
        relay.user()("send", "agent.a", "1")
    with serving(tmp_path) as relay:
        assert relay.operator().json("stats")["storage"] == "journal"
        assert relay.operator().json("inbox", "agent.a")["pending"] == 1
    with serving(tmp_path, "--storage", "maildir") as relay:
        assert relay.operator().json("stats")["storage"] == "maildir"


def test_show_pressure_reveals_the_fill_level_to_senders(tmp_path: Path, data: Path) -> None:
    data.mkdir(mode=0o700)
    full = '{"reliability": {"backpressure": {"maxMailboxSize": 1}}}'
    (data / "config.json").write_text(full)
    with serving(tmp_path, "--show-pressure", data=data) as relay:
        user = relay.user()
        user("send", "agent.a", "1")
        assert "1/1" in user("send", "agent.a", "1", exits=3).stdout


def test_a_signal_during_the_start_stops_it_in_order(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from waypost.cli import server_process\n"
        "real = server_process.open_context\n"
        "def slow(*given, **more):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return real(*given, **more)\n"
        "server_process.open_context = slow\n"
        "sys.argv = ['waypost', 'serve', '--port', '0', '--data-dir', sys.argv[1]]\n"
        "from waypost.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")],
        env={**os.environ, **UNSET},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert CommandLine(tmp_path / "data").json("verify")["ok"]
