"""How many small faults in the core do the tests of its rooms see? `python -m benchmarks.mutants
--help`."""
