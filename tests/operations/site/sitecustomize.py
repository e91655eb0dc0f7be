"""On PYTHONPATH of a served folder: the sweeps of trivial.yaml are made up, as with benchmarks.trivial."""

import sys

if any(word.endswith("/trivial.yaml") for word in sys.orig_argv):
    from benchmarks.trivial.__main__ import install

    install()
