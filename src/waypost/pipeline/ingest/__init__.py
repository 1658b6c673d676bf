"""Two ways to read segments into a batch of `events`, with the same rows as result.

`arrow_reader` reads whole segments with Arrow, one task each. It needs segments and lake on a file
system that Spark's Python shares, and leaves damaged journals to the other. `spark_reader` reads
line by line with Spark's own readers: from anywhere, whatever the lines contain.
"""
