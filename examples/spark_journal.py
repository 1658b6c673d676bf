"""A relay's journal in Spark: read it, follow it while it grows, and write back to the relay.

Each `# %%` is a cell: open it as a notebook, or run it as it is.

    python examples/spark_journal.py DATA_DIR                         # reads, and looks for 15 s
    python examples/spark_journal.py DATA_DIR http://127.0.0.1:8080   # and sends an alert

Needs `pip install "waypost[spark]"` and Java 17 or newer.
"""

# %% A session that knows the format `waypost`
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.datasource import register

data_dir = sys.argv[1] if len(sys.argv) > 1 else "waypost-data"
url = sys.argv[2] if len(sys.argv) > 2 else None
follow_s = 15

# Else Spark runs the first python3 it finds.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
quiet = {"spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
spark = SparkSession.builder.config(map=quiet).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
register(spark)

# %% The journal as it is: one row for each event
events = spark.read.format("waypost").load(data_dir)
events.groupBy("kind").count().orderBy(F.desc("count")).show()

# %% Who was refused, and why
rejected = (
    events.where(F.col("kind") == "rejected")
    .groupBy("sender", "reason")
    .agg(F.sum("count").alias("refusals"))
    .orderBy(F.desc("refusals"), "sender", "reason")
)
rejected.show(truncate=False)

# %% Payloads too, if you ask for them
with_payloads = spark.read.format("waypost").option("payload", "true").load(data_dir)
sizes = with_payloads.where("kind = 'accepted' and payload is not null").select(
    "endpoint", F.octet_length("payload").alias("bytes")
)
sizes.groupBy("endpoint").agg(F.max("bytes").alias("largest")).orderBy(F.desc("largest")).show(5)

# %% The journal as it grows: what the relay does from now on, for a few seconds
following = (
    spark.readStream.format("waypost")
    .option("from", "now")
    .load(data_dir)
    .select("seq", "kind", "endpoint", "id")
    .writeStream.format("memory")
    .queryName("live")
    .start()
)
print(f"following {data_dir} for {follow_s} s …")
following.awaitTermination(follow_s)
following.processAllAvailable()
following.stop()
spark.table("live").orderBy("seq").show(5, truncate=False)

# %% Back to the relay: one message for whoever watches
if url is not None:
    alerts = rejected.limit(3).select(
        F.lit("agent.watch").alias("subject"),
        F.to_json(F.struct("sender", "reason", "refusals")).alias("payload"),
    )
    alerts.write.format("waypost").mode("append").option("url", url).save()
    print(f"told agent.watch at {url}")

# %%
spark.stop()
