"""tokens/step-000040.parquet: per-token numbers of a few responses of a rollout, one row per
response.

Lists have an entry per response token: log-probabilities (nats) under the policy that was updated,
the old one, which the ratio divides by (`old`), the one that drew the response (`sampler`) and
the reference; the importance ratio; the bound of the clip that silenced the token (CLIPPED); the
advantage; the KL(policy || reference) (the ratio times k3 of the token,
or a sum over the vocabulary where the loss has one); and the slope, the derivative of the
mini-batch's loss with respect to the token's log-probability, which is what training followed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from rpg.store.atomic_files import StoreError, atomic_path
from rpg.store.run_folder import RunFolder, step_name

VALUES = ("policy", "old", "sampler", "reference", "ratio", "advantage", "kl", "slope")
CLIPPED = ("", "upper bound", "lower bound", "dual clip")
_SCHEMA = pyarrow.schema(
    [
        ("prompt_digest", pyarrow.string()),
        ("prompt", pyarrow.string()),
        ("sample", pyarrow.int32()),
        ("reward", pyarrow.float64()),
        ("optimizer_step", pyarrow.int64()),
        ("ids", pyarrow.list_(pyarrow.int32())),
        ("tokens", pyarrow.list_(pyarrow.string())),
        ("clipped", pyarrow.list_(pyarrow.int8())),
    ]
    + [(name, pyarrow.list_(pyarrow.float32())) for name in VALUES]
)
TOKEN_BYTES = 56
FILE_BYTES = 12_000
"""At most, of a token with all its numbers and its text, and of a file without any (measured by a
test)."""


def records_path(folder: RunFolder, step: int) -> Path:
    return folder.path / "tokens" / f"{step_name(step)}.parquet"


def write_records(folder: RunFolder, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Atomically; of a step that is trained again after a crash, the newer one stays."""
    with atomic_path(records_path(folder, step)) as temporary:
        table = pyarrow.Table.from_pylist([dict(row) for row in rows], _SCHEMA)
        pyarrow.parquet.write_table(table, temporary, compression="zstd")


def recorded_steps(folder: RunFolder) -> list[int]:
    return sorted(
        int(path.stem.removeprefix("step-")) for path in folder.path.glob("tokens/step-*.parquet")
    )


def read_records(folder: RunFolder, step: int) -> list[dict[str, Any]]:
    """Rows, as they were written. Raises StoreError: the file is missing, or is none of these."""
    path = records_path(folder, step)
    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path, schema=_SCHEMA).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise StoreError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from error
    return rows
