"""An object store is asked with credentials that the user has set, or with none."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from waypost.pipeline.spark.session import CREDENTIALS, only_configured_credentials

PROGRAM = """
import json, os
from waypost.pipeline.lake.delta import EVENTS_WITH_COMMENTS, update_logs
from waypost.pipeline.lake.manifest import DataFile, Manifest
from waypost.pipeline.spark.session import only_configured_credentials

file = DataFile("1-00000001/part.parquet", 10, 1, "2026-01-01", "2026-01-01")
with only_configured_credentials(os.environ):
    lake = Manifest(version=1, tables={"events": [file]})
    print(json.dumps(update_logs("s3://bucket/lake", lake, EVENTS_WITH_COMMENTS)))
"""


class AsksNothing(BaseHTTPRequestHandler):
    """A store and a metadata service that have nothing, and record what they are asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(404)
        self.end_headers()

    do_PUT = do_HEAD = do_GET  # noqa: N815 - named by the library

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of such a server, and the paths that it was asked for."""
    paths: list[str] = []
    handler = type("Handler", (AsksNothing,), {"asked": paths})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", paths
        server.shutdown()


@pytest.mark.process
@pytest.mark.parametrize("unsigned", ["", "false"])
def test_the_metadata_service_is_asked_only_if_the_user_wants_it(
    asked: tuple[str, list[str]], tmp_path: Path, unsigned: str
) -> None:
    address, paths = asked
    environment = {name: one for name, one in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_METADATA_ENDPOINT": address, "AWS_ENDPOINT_URL": f"{address}/store"}
    environment |= {"AWS_ALLOW_HTTP": "true", "HOME": str(tmp_path)}
    if unsigned:
        environment["AWS_SKIP_SIGNATURE"] = unsigned
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert any(path.startswith("/latest/") for path in paths) == bool(unsigned)
    assert any(path.startswith("/store/") for path in paths) != bool(unsigned)
    [note] = json.loads(done.stdout)
    assert note.startswith("no Delta tables: this machine cannot read s3://bucket/lake: ")
    assert "such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://" in note
    assert "404 Not Found" in note
    assert "\x1b" not in note


def test_requests_are_unsigned_only_for_the_block_and_without_credentials() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "key", "AZURE_SKIP_SIGNATURE": "false", "HOME": "/root"}
    before = dict(environment)
    with only_configured_credentials(environment):
        assert environment == {**before, "GOOGLE_SKIP_SIGNATURE": "true"}
    assert environment == before
    empty: dict[str, str] = {}
    with only_configured_credentials(empty):
        assert empty == dict.fromkeys(CREDENTIALS, "true")
