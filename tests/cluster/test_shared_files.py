"""The files of a partition that its relay watches, and the shared values."""

from pathlib import Path
from typing import cast

from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from waypost.cluster.shared_files import CONFIG_KEY, RULES_KEY, SharedFiles
from waypost.cluster.shared_values import SharedValue, SharedValues
from waypost.relay.data_dir import DataDir


async def test_what_changes_while_a_partition_is_opened_reaches_its_files(tmp_path: Path) -> None:
    values = SharedValues(cast("JetStreamContext", None), cast("KeyValue", None), "unused")
    files, data = SharedFiles(values), DataDir(tmp_path)
    values._learn(RULES_KEY, SharedValue(b"[1]", 1))
    values._learn(CONFIG_KEY, SharedValue(b"{}", 2))
    files.copy_to(data)
    values._learn(RULES_KEY, SharedValue(b"[2]", 3))
    values._learn(CONFIG_KEY, None)
    async with files.shared_from(data):
        assert data.rules.read_bytes() == b"[2]"
        assert not data.config.exists()
        values._learn(RULES_KEY, SharedValue(b"[3]", 4))
        assert data.rules.read_bytes() == b"[3]"
