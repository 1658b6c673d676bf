"""The journal of a served relay: its times never go back, whatever agents make it do."""

from tests.relay.observing import events
from tests.server.conftest import ServeRelay


async def test_times_in_the_journal_of_a_served_relay_never_go_back(
    serve_relay: ServeRelay,
) -> None:
    relay = await serve_relay(storage="maildir")
    sender = await relay.connect("agent.sender")
    for n in range(20):
        await sender.send(f"agent.new{n}", n)
    await relay.stop()
    found = events(relay.data_dir)
    assert len([one for one in found if one["kind"] == "endpoint"]) == 21
    times = [one["at_us"] for one in found]
    assert times == sorted(times)
