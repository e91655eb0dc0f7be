"""Benchmarks as data: AIME, AMC and kin, or one's own YAML file and a Parquet or JSON-lines file."""

from rpg.benchmarks.catalogue import Benchmark, benchmark, benchmarks
from rpg.benchmarks.load import LoadedBenchmark, check, load_benchmark
from rpg.benchmarks.overlap import Checks, Leak, leaks, near_duplicates

__all__ = [
    "Benchmark",
    "Checks",
    "Leak",
    "LoadedBenchmark",
    "benchmark",
    "benchmarks",
    "check",
    "leaks",
    "load_benchmark",
    "near_duplicates",
]
