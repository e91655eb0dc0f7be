"""On PYTHONPATH of a served folder: the sweeps of trivial.yaml are made up, as with benchmarks.trivial."""

import sys

if sys.orig_argv[1:4] == ["-m", "flows.command", "sweep"] and sys.orig_argv[4].endswith("/trivial.yaml"):
    from benchmarks.trivial.__main__ import install

    install()
