"""`waypost endpoints` and `waypost stats`."""

from pathlib import Path

from tests.cli.conftest import CommandLine
from tests.cli.directories import add_dead_letters, fill, in_relay, segments, tree
from waypost import Relay


def test_endpoints_are_listed_in_order_of_registration_with_their_counts(
    waypost: CommandLine,
) -> None:
    fill(waypost.data)
    first, second = waypost.json("endpoints")["endpoints"]
    assert (first["subject"], second["subject"]) == ("agent.a", "agent.c")
    assert (first["pending"], first["leased"], first["dead"]) == (4, 2, 0)
    assert Path(first["maildir_path"]).name == first["hash"]
    assert Path(first["maildir_path"]).is_dir()
    assert first["registered_at"].endswith("Z")


def test_text_output_is_a_table_of_endpoints(waypost: CommandLine) -> None:
    fill(waypost.data)
    lines = waypost("endpoints").stdout.splitlines()
    titles = ["Endpoint", "Pending", "Leased", "Dead", "Oldest", "Registered", "Mailbox"]
    assert lines[0].split() == titles
    assert lines[2].split()[:4] == ["agent.a", "4", "2", "0"]


def test_without_mailbox_files_there_is_no_path(waypost: CommandLine) -> None:
    fill(waypost.data, storage="journal")
    assert waypost.json("endpoints")["endpoints"][0]["maildir_path"] is None


def test_an_unregistered_endpoint_is_not_listed(waypost: CommandLine) -> None:
    async def act(relay: Relay) -> None:
        relay.register_endpoint("agent.a")
        relay.unregister_endpoint("agent.a")

    in_relay(waypost.data, act)
    assert waypost.json("endpoints") == {"endpoints": []}
    assert "No endpoints. Register one" in waypost("endpoints").stdout


def test_stats_count_messages_by_status_and_by_endpoint(waypost: CommandLine) -> None:
    fill(waypost.data)
    add_dead_letters(waypost.data, "doomed", to="agent.d")
    stats = waypost.json("stats")
    assert stats["by_status"] == {"pending": 8, "scheduled": 0, "leased": 0, "dead": 1}
    assert stats["total_messages"] == 9
    [mailbox] = [one for one in stats["endpoints"] if one["subject"] == "agent.a"]
    assert (mailbox["pending"], mailbox["dead"]) == (6, 0)
    assert mailbox["top_senders"] == [["agent.b", 6, mailbox["bytes"]]]
    assert mailbox["pressure"] == 6 / 1000
    assert stats["problems"] == []
    assert stats["in_use_by"] == ""


def test_stats_count_events_and_rejections(waypost: CommandLine) -> None:
    async def act(relay: Relay) -> None:
        relay.register_endpoint("agent.a")
        for _ in range(103):
            await relay.publish("agent.a", 1, sender="agent.b")

    in_relay(waypost.data, act)
    stats = waypost.json("stats")
    assert stats["events"]["accepted"] == 100
    assert stats["rejected"] == {"rate_limited": 3}
    assert stats["counted_since"] <= stats["last_event_at"]
    text = waypost("stats").stdout
    assert "rejected: rate_limited 3" in text
    assert "100 pending, 0 leased, 0 dead" in text


def test_stats_without_the_index_are_the_same(waypost: CommandLine) -> None:
    fill(waypost.data)
    with_index = waypost.json("stats")
    (waypost.data / "index.db").unlink()
    assert waypost.json("stats") == with_index
    assert not (waypost.data / "index.db").exists()


def test_stats_show_an_ignored_config_and_broken_rules(
    waypost: CommandLine,
) -> None:
    fill(waypost.data)
    (waypost.data / "config.json").write_text('{"maxHops": 0}')
    (waypost.data / "access-rules.json").write_text("[{")
    config, rules = waypost.json("stats")["problems"]
    assert "config.json is ignored" in config
    assert "maxHops" in config
    assert "every publish is denied" in rules
    assert waypost("stats").stdout.count("problem: ") == 2


def test_stats_show_damage_of_the_newest_journal(waypost: CommandLine) -> None:
    fill(waypost.data)
    (waypost.data / "index.db").unlink()
    sealed = segments(waypost.data)[0]
    sealed.write_bytes(sealed.read_bytes().replace(b'"number":3', b'"number":7'))
    [problem] = waypost.json("stats")["problems"]
    assert problem.startswith("journal: bytes ")


def test_read_commands_change_no_file(waypost: CommandLine) -> None:
    fill(waypost.data)
    before = tree(waypost.data)
    waypost("stats")
    waypost("endpoints")
    waypost("dead-letters", "list")
    waypost("verify")
    waypost("config", "show")
    assert tree(waypost.data) == before


def test_a_data_directory_may_have_any_name(tmp_path: Path) -> None:
    odd = CommandLine(tmp_path / "what? 100%20 #1 & more")
    odd("send", "agent.a", "1", "--sender", "agent.b", "--register")
    assert odd.json("stats")["by_status"]["pending"] == 1
    assert odd.json("verify")["ok"]
