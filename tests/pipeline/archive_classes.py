"""Write a class archive of Spark, which saves each JVM of the tests five seconds of CPU time.

Run as `python -m tests.pipeline.archive_classes FILE`. The JVM uses an archive only with the jars
and the Java that wrote it, and ignores it otherwise.
"""

import os
import sys
import tempfile
from pathlib import Path

from tests.conftest import JAVA_OPTIONS
from tests.pipeline.conftest import QUICK
from tests.pipeline.tables.journal_by_hand import write_first_part
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.spark.class_archive import archive_classes
from waypost.pipeline.spark.session import SparkChoice, spark_session


def write_archive(archive: Path) -> None:
    """Ingest a small journal, and archive the classes that this loads."""
    with archive_classes(archive) as archiving, tempfile.TemporaryDirectory() as scratch:
        options = {"spark.driver.extraJavaOptions": " ".join([*JAVA_OPTIONS, archiving])}
        choice = SparkChoice(master="local[2]", conf={**QUICK, **options})
        with spark_session(choice, os.environ) as spark:
            write_first_part(Path(scratch))
            lake = open_lake(spark, f"{scratch}/lake", create=True)
            ingest(lake, parse_sources([f"relay={scratch}"]))


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
