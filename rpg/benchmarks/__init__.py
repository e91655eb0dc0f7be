"""Benchmarks as data: AIME, AMC and kin, or one's own YAML file and a Parquet or JSON-lines file."""

from rpg.benchmarks.catalogue import Benchmark, benchmark, benchmarks
from rpg.benchmarks.load import LoadedBenchmark, load_benchmark
from rpg.benchmarks.overlap import Leak, leaks, twins

__all__ = [
    "Benchmark",
    "Leak",
    "LoadedBenchmark",
    "benchmark",
    "benchmarks",
    "leaks",
    "load_benchmark",
    "twins",
]
