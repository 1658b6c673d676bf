"""A NATS server for these tests."""

from tests.harness.nats_server import nats_server

__all__ = ["nats_server"]
