"""The relay as a sink: `df.write.format("waypost")`, against a running server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.cli.serve_process import ServeProcess
from waypost.pipeline.datasource import register


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    home = tmp_path_factory.mktemp("served")
    relay = ServeProcess(home / "data", home, ())
    yield relay
    relay.end()


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)


def write_messages(messages: DataFrame, served: ServeProcess, **options: Any) -> None:
    writer = messages.write.format("waypost").mode("append").option("url", served.url)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def stored_in(served: ServeProcess, endpoint: str) -> list[dict[str, Any]]:
    """Return the stored messages, from the journal, in order."""
    lines = b"".join(path.read_bytes() for path in Path(served.data, "journal").glob("*.open"))
    events = [json.loads(line) for line in lines.splitlines()]
    return [
        event
        for event in events
        if event["kind"] == "accepted" and event.get("endpoint") == endpoint
    ]


def test_rows_become_messages(spark: SparkSession, served: ServeProcess) -> None:
    rows = [("agent.rows", '{"n": 1.50, "word": "grüße"}', "agent.me", "row-1")]
    columns = "subject string, payload string, reply_to string, message_id string"
    write_messages(spark.createDataFrame(rows, columns), served)
    (message,) = stored_in(served, "agent.rows")
    assert (message["id"], message["reply_to"]) == ("row-1", "agent.me")
    assert message["payload"] == {"n": 1.5, "word": "grüße"}


def test_a_repeated_job_stores_nothing_twice(spark: SparkSession, served: ServeProcess) -> None:
    rows = spark.range(6).repartition(2).selectExpr("'agent.again' subject", "'0' payload")
    write_messages(rows, served, job="nightly-7")
    write_messages(rows, served, job="nightly-7")
    ids = [message["id"] for message in stored_in(served, "agent.again")]
    assert len(ids) == len(set(ids)) == 6
    assert all(one.startswith("nightly-7-") for one in ids)


def test_rejections_end_the_job_with_their_number_and_reasons(
    spark: SparkSession, served: ServeProcess
) -> None:
    # An unknown sender may have 20 pending messages in one inbox.
    rows = (
        spark.range(23).coalesce(1).selectExpr("'agent.full' subject", "cast(id as string) payload")
    )
    with pytest.raises(PySparkException, match="rejected 3 of 23 messages \\(3 quota_exceeded\\)"):
        write_messages(rows, served)
    assert len(stored_in(served, "agent.full")) == 20
    write_messages(rows.limit(1), served, rejected="skip")
    assert len(stored_in(served, "agent.full")) == 20


@pytest.mark.parametrize(
    ("payload", "options", "words"),
    [
        ("no JSON", {}, "payload is not valid JSON text"),
        ("1", {"token": "stolen"}, "the relay rejected a request with 1 messages"),
        ("1", {"rejected": "perhaps"}, "option rejected must be 'fail' or 'skip'"),
        ("1", {"refused": "perhaps"}, "option refused must be 'fail' or 'skip'"),
        ("1", {"url": "relay"}, "no relay given"),
    ],
)
def test_invalid_rows_and_options_are_errors(
    spark: SparkSession, served: ServeProcess, payload: str, options: dict[str, str], words: str
) -> None:
    rows = spark.createDataFrame([("agent.bad", payload)], "subject string, payload string")
    with pytest.raises(PySparkException, match=words):
        write_messages(rows, served, **options)
    assert not stored_in(served, "agent.bad")
