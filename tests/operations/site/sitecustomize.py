"""On PYTHONPATH of a served folder: the sweeps of trivial.yaml and of nights/ are made up, as with
benchmarks.trivial."""

import sys

if any(word.endswith(("/trivial.yaml", "/nights")) for word in sys.orig_argv):
    from benchmarks.trivial.__main__ import install

    install()
