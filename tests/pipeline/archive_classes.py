"""Write a class-data archive of Spark, which saves each JVM of the tests five seconds of CPU time.

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
from waypost.pipeline.spark.session import SparkChoice, spark_session


def write_archive(archive: Path) -> None:
    """Ingest a small journal; when the JVM exits, it archives the classes it has loaded."""
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}")
    archiving = [f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    options = {"spark.driver.extraJavaOptions": " ".join([*JAVA_OPTIONS, *archiving])}
    choice = SparkChoice(master="local[2]", conf={**QUICK, **options})
    with tempfile.TemporaryDirectory() as scratch, spark_session(choice, os.environ) as spark:
        jvm = spark.sparkContext._gateway.proc
        write_first_part(Path(scratch))
        lake = open_lake(spark, f"{scratch}/lake", create=True)
        ingest(lake, parse_sources([f"relay={scratch}"]))
    jvm.stdin.close()  # the JVM exits with its gateway
    jvm.wait()
    unfinished.replace(archive)


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
