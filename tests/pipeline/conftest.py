"""One Spark session for all tests of the pipeline that run in the same process."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from waypost.pipeline.spark.session import SparkChoice, spark_session

# Small data: more partitions would only mean more tasks of nothing.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "2g",
    # Queries here are over before compiling and planning them again would have paid for itself.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(SparkChoice(master="local[2]", conf=QUICK), os.environ) as session:
        yield session
