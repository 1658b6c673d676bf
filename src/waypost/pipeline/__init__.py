"""REPLAYS: turns journals into tables, reports and "what if" answers, with Spark.

Rule 1  DataFrame API only: every job runs in this process, on a cluster, and over Spark Connect.
Rule 2  Built-in functions before Python. The replay runs the policy's own code and is the one
        exception.
Rule 3  A job changes a lake in one commit at its end; readers see the previous version until then.
"""
