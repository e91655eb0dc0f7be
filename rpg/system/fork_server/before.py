"""What the fork server imports first: it ends with its parent, leads a session, writes to its
log."""

import gc
import os

from rpg.system.fork_server import LOG
from rpg.system.processes import die_with_parent

log = os.open(os.environ.pop(LOG), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
die_with_parent()
os.setsid()
for target in (1, 2):
    os.dup2(log, target)
os.close(log)
gc.disable()  # until all is imported: see rpg.system.processes.quick_imports
