"""All benchmarks, in the order in which `./run bench` runs them."""

from bench import agents, cluster, core, flood, growth, idle, ids, latency, network, opening, steady
from bench.pipeline import __main__ as pipeline
from bench.stream import __main__ as stream

BENCHMARKS = (
    core.BENCHMARK,
    network.BENCHMARK,
    latency.BENCHMARK,
    cluster.BENCHMARK,
    growth.BENCHMARK,
    ids.BENCHMARK,
    idle.BENCHMARK,
    agents.BENCHMARK,
    opening.BENCHMARK,
    steady.BENCHMARK,
    flood.BENCHMARK,
    pipeline.BENCHMARK,
    stream.BENCHMARK,
)
