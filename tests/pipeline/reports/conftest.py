"""Facts that were asked of the small lake once, for all tests of reports."""

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.reports.small_lake import SMALL, LakeInMemory
from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.queries.asking import gather_facts


@pytest.fixture(scope="package")
def small_facts(spark: SparkSession) -> Facts:
    return gather_facts(LakeInMemory(spark, SMALL))
