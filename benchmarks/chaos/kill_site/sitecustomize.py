"""On PYTHONPATH of a sweep and of its children: benchmarks.chaos.kill_points counts what they do
with files, and kills them at one point."""

from benchmarks.chaos import kill_hook

kill_hook.install()
