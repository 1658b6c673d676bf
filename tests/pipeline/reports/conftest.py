"""The report data of the small lake, queried once for all tests."""

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.reports.small_lake import SMALL, LakeInMemory
from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.queries import query_report_data


@pytest.fixture(scope="package")
def small_report(spark: SparkSession) -> ReportData:
    return query_report_data(LakeInMemory(spark, SMALL))
