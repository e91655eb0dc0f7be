"""Tests never wait for a training of somebody else on this machine: they have slots of their own."""

import os
import tempfile

os.environ.setdefault(
    "RPG_SLOTS_FOLDER", os.path.join(tempfile.gettempdir(), f"rpg-slots-test-{os.getuid()}")
)
