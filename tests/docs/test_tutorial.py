"""Execute docs/tutorial.md from its first command to its last."""

from pathlib import Path

import pytest

from tests.docs.page_runner import PATIENCE_S, Reader
from tests.e2e import transcripts


@pytest.mark.slow
@pytest.mark.spark
def test_every_command_of_the_tutorial_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "PATIENCE_S", PATIENCE_S)  # Spark takes a while
    with Reader(tmp_path) as reader:
        assert reader.follow("docs/tutorial.md") > 12
