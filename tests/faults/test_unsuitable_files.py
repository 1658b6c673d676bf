"""Pipes, devices and huge files in place of files that the relay reads: one error, no waiting."""

import os
from pathlib import Path

import httpx
import pytest

from tests.eventually import eventually
from tests.harness.listening_relay import listening
from waypost.relay.data_dir import DataDir
from waypost.relay.inspection.snapshot import directory_settings

kinds = pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("pipe", "not a regular file"),
        ("device", "not a regular file"),
        ("huge", "larger than"),
    ],
)


def put(kind: str, path: Path) -> None:
    """Put an unsuitable file in place of `path`, as one step."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    other = path.with_name("other")
    if kind == "pipe":
        os.mkfifo(other)
    elif kind == "device":
        other.symlink_to("/dev/zero")
    else:
        other.touch()
        os.truncate(other, 1 << 40)
    other.replace(path)


@kinds
async def test_a_relay_starts_with_unsuitable_settings_and_rules(
    tmp_path: Path, kind: str, problem: str
) -> None:
    put(kind, tmp_path / "config.json")
    put(kind, tmp_path / "access-rules.json")
    async with listening(tmp_path) as relay, httpx.AsyncClient(base_url=relay.url) as http:
        assert (await http.get("/readyz")).status_code == 200
        settings, rules = relay.context.relay.metrics().problems
        assert settings == f"{tmp_path}/config.json is ignored: {problem}" or kind == "huge"
        assert problem in settings
        assert problem in rules
        assert "every publish is denied" in rules
        sent = await http.post("/v1/messages", json={"subject": "agent.a", "payload": 1})
        assert sent.status_code == 403
    assert problem in directory_settings(DataDir(tmp_path))[1]


@kinds
async def test_a_running_relay_ignores_unsuitable_settings_and_denies_with_unsuitable_rules(
    tmp_path: Path, kind: str, problem: str
) -> None:
    async with listening(tmp_path, watch_files=True) as relay:
        before = relay.context.relay.settings
        put(kind, tmp_path / "config.json")
        put(kind, tmp_path / "access-rules.json")

        def problems() -> list[str]:
            return relay.context.relay.metrics().problems

        await eventually(lambda: len(problems()) == 2, "the problems of both files")
        assert all(problem in one for one in problems())
        assert relay.context.relay.settings == before
        (tmp_path / "config.json").unlink()
        (tmp_path / "access-rules.json").unlink()
        await eventually(lambda: problems() == [], "the end of the problems")


@kinds
async def test_an_unsuitable_report_or_backtest_is_an_error_in_one_sentence(
    tmp_path: Path, kind: str, problem: str
) -> None:
    put(kind, tmp_path / "lake" / "report.html")
    put(kind, tmp_path / "lake" / "backtest.json")
    async with listening(tmp_path) as relay:
        token = (tmp_path / "operator-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=relay.url, headers=headers) as http:
            report = await http.get("/v1/pipeline/report")
            assert report.status_code == 404
            assert problem in report.json()["error"]
            state = await http.get("/v1/pipeline")
            assert state.status_code == 200
            assert problem in state.json()["problem"]
