"""Run folders, the results database and its queries. Imports neither torch nor the rest of the
library."""

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
