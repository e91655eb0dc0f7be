"""What the fork server imports last: all children compute with what is loaded now, whatever becomes
of the files."""

import gc

from rpg.system import provenance

provenance.record(provenance.loaded())
gc.freeze()  # it stays: no child need look through it for garbage, nor copy its pages for that
gc.enable()
