"""Jobs of the pipeline that the operator starts: one at a time, bounded in time and output.

Small programs stand for the command line of Waypost here; `tests/dashboard` starts the real one.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually
from waypost.server.pipeline_jobs import OUTPUT_MAX_BYTES, PipelineJob, PipelineJobs

pytestmark = pytest.mark.process

RECORDS = """
import json, pathlib, sys
arguments = sys.argv[2:]
if "--settings" in arguments:
    arguments.append(pathlib.Path(arguments[arguments.index("--settings") + 1]).read_text())
with open(sys.argv[1], "a") as log:
    log.write(json.dumps(arguments) + "\\n")
"""
FAILS = "import sys; print('no Java found: install one'); sys.exit(1)"
PRINTS_MUCH = f"print('x' * {10 * OUTPUT_MAX_BYTES}); print('the end')"
NEVER_ENDS = "import sys, time\nif 'serve' not in sys.argv: time.sleep(3600)"


def jobs_running(program: str, tmp_path: Path, timeout_s: float = 60.0) -> PipelineJobs:
    command = [sys.executable, "-c", program, str(tmp_path / "log")]
    return PipelineJobs(command, tmp_path / "data", tmp_path / "lake", lambda: 7, timeout_s)


async def ended(jobs: PipelineJobs) -> PipelineJob:
    await eventually(lambda: not jobs.is_running, "the end of the job", timeout_s=60.0)
    assert jobs.last is not None
    return jobs.last


async def test_a_backtest_reads_the_journal_and_replays_it_under_the_settings(
    tmp_path: Path,
) -> None:
    jobs = jobs_running(RECORDS, tmp_path)
    assert jobs.backtest(b'{"maxHops": 3}').state == "running"
    job = await ended(jobs)
    assert (job.state, job.ended_us) == ("done", 7)
    serve, ingest, backtest = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert serve[:2] == ["pipeline", "serve"]
    lake = ["--lake", str(tmp_path / "lake")]
    assert ingest == ["pipeline", "ingest", "--journal", str(tmp_path / "data"), *lake]
    assert backtest[:4] == ["pipeline", "backtest", *lake]
    assert backtest[-1] == '{"maxHops": 3}'
    assert not os.path.exists(backtest[-2])  # noqa: ASYNC240 - the file with the settings


async def test_a_job_that_fails_shows_what_it_printed(tmp_path: Path) -> None:
    jobs = jobs_running(FAILS, tmp_path)
    jobs.backtest(b"{}")
    job = await ended(jobs)
    assert (job.state, job.step) == ("failed", "reading the journal")
    assert job.output == "no Java found: install one\n"


async def test_only_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    jobs = jobs_running(PRINTS_MUCH, tmp_path)
    jobs.refresh_report()
    job = await ended(jobs)
    assert job.output.endswith("xxx\nthe end\n")
    assert len(job.output) == OUTPUT_MAX_BYTES


async def test_a_job_is_killed_after_its_time_limit(tmp_path: Path) -> None:
    jobs = jobs_running(NEVER_ENDS, tmp_path, timeout_s=0.5)
    jobs.refresh_report()
    job = await ended(jobs)
    assert (job.state, job.output) == (
        "failed",
        "\nstopped after 0 s: run it from a terminal",
    )


async def test_closing_kills_the_job_and_the_spark_server(tmp_path: Path) -> None:
    forks = (
        f"{RECORDS}\nimport os, time\nopen(sys.argv[1] + '.pids', 'a').write(f'{{os.getpid()}} ')"
    )
    jobs = jobs_running(f"{forks}\nprint('Spark is ready', flush=True)\ntime.sleep(3600)", tmp_path)
    jobs.refresh_report()
    pids = tmp_path / "log.pids"
    await eventually(
        lambda: pids.exists() and len(pids.read_text().split()) == 2, "both", timeout_s=60.0
    )
    await jobs.close()
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert jobs.last is not None
    assert jobs.last.state == "failed"


async def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    jobs = PipelineJobs([str(tmp_path / "gone")], tmp_path, tmp_path / "lake", lambda: 7)
    jobs.refresh_report()
    job = await ended(jobs)
    assert job.output == f"\n{tmp_path}/gone cannot be run: No such file or directory"
