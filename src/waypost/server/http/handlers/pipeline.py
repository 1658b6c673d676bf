"""What the pipeline has made of this relay's journal: its report, and its last backtest.

The pipeline is another program. It leaves files in its lake, and those are shown as they are.
"""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from waypost.server.http.callers import Access
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Call,
    NoParameters,
    Operation,
    Reply,
)
from waypost.server.http.errors import HttpError

REPORT = "report.html"
BACKTEST = "backtest.json"
FILE_MAX_BYTES = 8 * 1024 * 1024

_HTML = "text/html; charset=utf-8"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


class LakeFile(msgspec.Struct, kw_only=True):
    """A file in the lake, when it was last written (µs), and its size."""

    path: str
    at_us: int
    bytes: int


class PipelineState(msgspec.Struct, kw_only=True):
    """What there is. `backtest` is what `waypost pipeline backtest` last left there, or empty.

    `problem` says why a file that is there cannot be shown.
    """

    lake: str
    journal: str
    report: LakeFile | None
    backtest_file: LakeFile | None
    backtest: dict[str, Any]
    problem: str = ""


async def get_pipeline(call: Call[NoParameters, None]) -> Reply:
    """What there is to show."""
    journal = call.context.relay.inspect().data_dir
    return Reply(await asyncio.to_thread(_look, call.context.lake, journal))


async def get_report(call: Call[NoParameters, None]) -> Reply:
    """The report itself."""
    path = call.context.lake / REPORT
    try:
        content = await asyncio.to_thread(_read, path)
    except OSError:
        raise HttpError(
            404, f"there is no report at {path}: 'waypost pipeline run' makes one"
        ) from None
    return Reply(content, media_type=_HTML, headers={"Content-Security-Policy": _POLICY})


def _look(lake: Path, journal: Path) -> PipelineState:
    state = PipelineState(
        lake=str(lake.absolute()),
        journal=str(journal),
        report=_file(lake / REPORT),
        backtest_file=_file(lake / BACKTEST),
        backtest={},
    )
    if state.backtest_file is not None:
        try:
            state.backtest = msgspec.json.decode(_read(lake / BACKTEST), type=dict[str, Any])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
            state.problem = f"{BACKTEST} cannot be shown: {problem}"
    return state


def _file(path: Path) -> LakeFile | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return LakeFile(path=str(path.absolute()), at_us=found.st_mtime_ns // 1000, bytes=found.st_size)


def _read(path: Path) -> bytes:
    """The content of a file; one that is too large to be what it should be is not read."""
    if path.stat().st_size > FILE_MAX_BYTES:
        raise OSError(f"{path} is larger than {FILE_MAX_BYTES:,} bytes")
    return path.read_bytes()


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/pipeline",
        access=Access.OPERATOR,
        summary="What the pipeline has made",
        description="The report and the last backtest in the lake, if they are there.",
        tag="pipeline",
        handler=get_pipeline,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(PipelineState),
    ),
    Operation(
        method="GET",
        path="/v1/pipeline/report",
        access=Access.OPERATOR,
        summary="The report of the pipeline",
        description="One page that needs nothing else.",
        tag="pipeline",
        handler=get_report,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(None, "A page.", _HTML),
        rejections={404: "There is no report yet."},
    ),
)
