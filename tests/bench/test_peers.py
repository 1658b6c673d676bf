"""Every peer publishes and delivers, or says how to get it."""

import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bench import core, latency, network
from bench.costs import CpuMeter, allocated_bytes, measure_disk
from bench.pace import pace
from bench.peers import Contestant, Peer, PeerError, start_available
from bench.peers.rabbitmq import RabbitQuorum
from bench.peers.served_relay import ServedRelay
from bench.peers.sqlite_queues import PersistQueue
from bench.round_trips import PacedPeer, RoundTripPeer

pytestmark = [
    pytest.mark.process,
    # Clients leave connections to servers that are killed.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Yield a directory, short enough for sockets; peers have to remove their files from it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        yield Path(directory)
        assert list(Path(directory).iterdir()) == []


async def started(peer: Contestant, scratch: Path, stack: AsyncExitStack) -> bool:
    """Start a peer; return False if it cannot be had, after a look at the reason."""
    peers, missing = await start_available([peer], scratch, stack)
    assert all("install" in reason for reason in missing.values())
    return bool(peers)


@pytest.mark.parametrize("peer", core.contestants(), ids=lambda peer: peer.name)
async def test_a_peer_consumes_what_it_published(peer: Peer, scratch: Path) -> None:
    async with AsyncExitStack() as stack:
        if await started(peer, scratch, stack):
            meter = CpuMeter(peer, peer.publish, peer.consume)
            for operation in [*meter.operations(), *meter.operations()]:
                assert await operation(30, 10) > 0
            assert len(meter.seconds()) == 1
            disk = await measure_disk(peer, (peer.publish, peer.consume), 20)
            assert set(disk) == {"stored_mb", "kept_mb"}


@pytest.mark.parametrize("peer", network.contestants(), ids=lambda peer: peer.name)
async def test_a_served_peer_makes_round_trips(peer: RoundTripPeer, scratch: Path) -> None:
    async with AsyncExitStack() as stack:
        if await started(peer, scratch, stack):
            before = peer.server_cpu_seconds()
            assert await peer.round_trips(30, 10) > 0
            assert peer.server_cpu_seconds() > before
            assert allocated_bytes(peer.directory) > 0


@pytest.mark.parametrize("peer", latency.contestants(), ids=lambda peer: peer.name)
async def test_each_message_of_a_fixed_rate_has_a_latency(peer: PacedPeer, scratch: Path) -> None:
    async with AsyncExitStack() as stack:
        if await started(peer, scratch, stack):
            latencies = await pace(peer, 200, 0.25)
            assert len(latencies.arrived_ms) == len(latencies.confirmed_ms) == 50
            assert min(latencies.arrived_ms) > 0


async def test_a_peer_that_is_not_installed_is_named(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(scratch))
    async with AsyncExitStack() as stack:
        peers, missing = await start_available([RabbitQuorum()], scratch, stack)
    assert peers == []
    assert missing == {"RabbitMQ quorum queue": "not installed, apt-get install rabbitmq-server"}


class Unstartable(PersistQueue):
    """A peer whose server does not start."""

    async def start(self, data_dir: Path) -> None:
        raise PeerError("no port is free")

    def available(self) -> None:
        return None


async def test_a_peer_that_does_not_start_is_named(scratch: Path) -> None:
    async with AsyncExitStack() as stack:
        _, missing = await start_available([Unstartable()], scratch, stack)
    assert missing == {"persist-queue": "did not start: no port is free"}


async def test_a_relay_that_does_not_start_is_an_error(scratch: Path) -> None:
    relay = Unstartable()
    relay.name = "Waypost journal"
    async with AsyncExitStack() as stack:
        with pytest.raises(PeerError, match="no port is free"):
            await start_available([relay], scratch, stack)


async def test_no_limit_of_the_served_relay_is_in_the_way_of_a_burst(scratch: Path) -> None:
    async with AsyncExitStack() as stack:
        relay = ServedRelay("journal")
        await start_available([relay], scratch, stack)
        latencies = await pace(relay, 1e9, 3e-6)
        assert len(latencies.arrived_ms) == 3000
