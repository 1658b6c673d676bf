"""Results of the pipeline for this relay: its report, its last backtest, and jobs that make them.

The pipeline is another program; its files in the lake are served unchanged.
"""

import asyncio
import stat
from pathlib import Path
from typing import Any

import msgspec

from waypost.files import read_file
from waypost.policy.settings import to_config_document
from waypost.server.context import ServerContext
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
from waypost.server.http.handlers.operating import CONFIG_BODY
from waypost.server.pipeline_jobs import PipelineJob, PipelineJobs

REPORT = "report.html"
BACKTEST = "backtest.json"
FILE_MAX_BYTES = 8 * 1024 * 1024

_HTML = "text/html; charset=utf-8"
_NO_JOB = "A job is running already, or this relay starts none."
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


class LakeFile(msgspec.Struct, kw_only=True):
    """A file in the lake, its modification time (µs) and its size."""

    path: str
    at_us: int
    bytes: int


class PipelineState(msgspec.Struct, kw_only=True):
    """The files of the pipeline. `backtest` is the last result of `waypost pipeline backtest`.

    `problem` explains why an existing file cannot be shown. `can_start`: whether the operator can
    start jobs here. `job`: the one that runs, or that ended last.
    """

    lake: str
    journal: str
    report: LakeFile | None
    backtest_file: LakeFile | None
    backtest: dict[str, Any]
    problem: str = ""
    can_start: bool = False
    job: PipelineJob | None = None


async def get_pipeline(call: Call[NoParameters, None]) -> Reply:
    """Return the files of the pipeline, and its job."""
    journal = call.context.relay.inspect().data_dir
    state = await asyncio.to_thread(_inspect, call.context.lake, journal)
    state.can_start = call.context.pipeline_jobs.can_start
    state.job = call.context.pipeline_jobs.last
    return Reply(state)


async def refresh_report(call: Call[NoParameters, None]) -> Reply:
    """Start a job that reads the journal and writes the report."""
    return Reply(_idle_jobs(call.context).refresh_report())


async def start_backtest(call: Call[NoParameters, bytes]) -> Reply:
    """Start a job that replays the journal under other settings."""
    settings = call.context.relay.settings_file.consider(call.body)
    # All of them: a setting that the body omits has its default, whatever was in force.
    complete = msgspec.json.encode(to_config_document(settings))
    return Reply(_idle_jobs(call.context).backtest(complete))


def _idle_jobs(context: ServerContext) -> PipelineJobs:
    jobs = context.pipeline_jobs
    if not jobs.can_start:
        raise HttpError(
            409, "this relay starts no jobs of the pipeline: run 'waypost pipeline' in a terminal"
        )
    if jobs.is_running:
        raise HttpError(409, "a job of the pipeline is running: wait until it has ended")
    return jobs


async def get_report(call: Call[NoParameters, None]) -> Reply:
    """Return the report."""
    path = call.context.lake / REPORT
    try:
        content = await asyncio.to_thread(read_file, path, FILE_MAX_BYTES)
    except OSError as problem:
        why = "" if isinstance(problem, FileNotFoundError) else f" ({problem.strerror})"
        raise HttpError(
            404, f"no report at {path}{why}: create it with 'waypost pipeline run'"
        ) from None
    return Reply(content, media_type=_HTML, headers={"Content-Security-Policy": _POLICY})


def _inspect(lake: Path, journal: Path) -> PipelineState:
    state = PipelineState(
        lake=str(lake.absolute()),
        journal=str(journal),
        report=_file(lake / REPORT),
        backtest_file=_file(lake / BACKTEST),
        backtest={},
    )
    if state.report is not None:
        state.problem = _problem(lake / REPORT)
    if state.backtest_file is not None:
        try:
            content = read_file(lake / BACKTEST, FILE_MAX_BYTES)
            state.backtest = msgspec.json.decode(content, type=dict[str, Any])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            state.problem = f"{BACKTEST} cannot be read: {problem}"
    return state


def _file(path: Path) -> LakeFile | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return LakeFile(path=str(path.absolute()), at_us=found.st_mtime_ns // 1000, bytes=found.st_size)


def _problem(path: Path) -> str:
    """Return why an existing file cannot be read; empty if it can."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        return f"{path.name} cannot be read: not a regular file"
    if found.st_size > FILE_MAX_BYTES:
        return f"{path.name} cannot be read: larger than {FILE_MAX_BYTES:,} bytes"
    return ""


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/pipeline",
        access=Access.OPERATOR,
        summary="Results of the pipeline",
        description="The report and the last backtest in the lake, if they exist.",
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
        summary="Report of the pipeline",
        description="One page without external resources.",
        tag="pipeline",
        handler=get_report,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(None, "An HTML page.", _HTML),
        rejections={404: "No report yet."},
    ),
    Operation(
        method="POST",
        path="/v1/pipeline/report",
        access=Access.OPERATOR,
        summary="Refresh the report",
        description=(
            "Start a job that reads the journal, builds the tables and writes the report."
            " `GET /v1/pipeline` shows its progress."
        ),
        tag="pipeline",
        handler=refresh_report,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(PipelineJob),
        rejections={409: _NO_JOB},
    ),
    Operation(
        method="POST",
        path="/v1/pipeline/backtest",
        access=Access.OPERATOR,
        summary="Replay the journal under other settings",
        description=(
            "Start a job that decides all recorded messages again, under the settings in the body,"
            " and changes nothing. `GET /v1/pipeline` shows its progress and its result."
        ),
        tag="pipeline",
        handler=start_backtest,
        parameters=NoParameters,
        body=CONFIG_BODY,
        answer=Answer(PipelineJob),
        rejections={409: _NO_JOB},
    ),
)
