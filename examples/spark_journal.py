"""A relay's journal in Spark: read it, stream it, and write messages back to the relay.

Each `# %%` is a cell: open the file as a notebook, or run it as a script.

    python examples/spark_journal.py DATA_DIR                         # read, and stream for 15 s
    python examples/spark_journal.py DATA_DIR http://127.0.0.1:8080   # and send an alert

Needs `pip install "waypost[spark]"` and Java 17 or newer.
"""

# %% A session with the data source `waypost`
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.datasource import register

data_dir = sys.argv[1] if len(sys.argv) > 1 else "waypost-data"
url = sys.argv[2] if len(sys.argv) > 2 else None
follow_s = 15

# Otherwise Spark runs the first python3 on the path.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
quiet = {"spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.config(map=quiet).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
register(spark)

# %% The journal: one row per event
events = spark.read.format("waypost").load(data_dir)
events.groupBy("kind").count().orderBy(F.desc("count")).show()

# %% Rejections by sender and reason
rejected = (
    events.where(F.col("kind") == "rejected")
    .groupBy("sender", "reason")
    .agg(F.sum("count").alias("rejections"))
    .orderBy(F.desc("rejections"), "sender", "reason")
)
rejected.show(truncate=False)

# %% Payloads are read on request
with_payloads = spark.read.format("waypost").option("payload", "true").load(data_dir)
sizes = with_payloads.where("kind = 'accepted' and payload is not null").select(
    "endpoint", F.octet_length("payload").alias("bytes")
)
sizes.groupBy("endpoint").agg(F.max("bytes").alias("largest")).orderBy(F.desc("largest")).show(5)

# %% A stream of new events, for a few seconds
following = (
    spark.readStream.format("waypost")
    .option("from", "now")
    .load(data_dir)
    .select("seq", "kind", "endpoint", "id")
    .writeStream.format("memory")
    .queryName("live")
    .start()
)
print(f"streaming {data_dir} for {follow_s} s …")
following.awaitTermination(follow_s)
following.processAllAvailable()
following.stop()
spark.table("live").orderBy("seq").show(5, truncate=False)

# %% Write alerts back to the relay as messages
if url is not None:
    alerts = rejected.limit(3).select(
        F.lit("agent.watch").alias("subject"),
        F.to_json(F.struct("sender", "reason", "rejections")).alias("payload"),
    )
    alerts.write.format("waypost").mode("append").option("url", url).save()
    print(f"sent alerts to agent.watch at {url}")

# %%
spark.stop()
