"""Run folders, the results database and its queries.

In: what trainers and evaluators write. Out: which runs are current, what is owed, tables to query.
Files are the truth; the database can be rebuilt from them at any time. Imports neither torch nor
the rest of the library. Read first: run_folder.py, then ingest.py.
"""

from rpg.store.atomic_files import (
    StoreError,
    atomic_path,
    atomic_write_bytes,
    atomic_write_json,
    atomic_write_text,
)
from rpg.store.layout import Layout, home, user_cache
from rpg.store.lease import lease_alive
from rpg.store.run_folder import RunFolder

__all__ = ["Layout", "RunFolder", "StoreError", "home", "lease_alive", "user_cache"]
__all__ += ["atomic_path", "atomic_write_bytes", "atomic_write_json", "atomic_write_text"]
