"""One Spark session for all pipeline tests of a process."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from waypost.pipeline.spark.session import SparkChoice, spark_session

# Small data: more partitions would only mean more empty tasks.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "2g",
    # Queries here are too short for code generation and adaptive planning to pay off.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(SparkChoice(master="local[2]", conf=QUICK), os.environ) as session:
        yield session
