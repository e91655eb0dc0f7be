"""python -m rpg.backends.local.prepare SWEEP_DIR: data and initial models of all runs of a sweep,
each made once.

Exit codes: 0 everything is there, 1 something cannot be made (the last line of the output says what
and why).
"""

import argparse
import functools
import sys
from pathlib import Path

from rpg.config.load import spec_of
from rpg.errors import UserError
from rpg.models.warm_start_cache import is_prepared, lengths_checked
from rpg.store.current import current_runs, is_imported
from rpg.store.layout import Layout
from rpg.system.processes import die_with_parent
from rpg.tasks.preparation import data_notes, prepare_data


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rpg.backends.local.prepare", description=__doc__
    )
    parser.add_argument("sweep", type=Path, help="the sweep's folder, with a folder per run")
    sweep = parser.parse_args(arguments).sweep.resolve()
    die_with_parent()
    try:
        _prepare(sweep.name, sweep.parents[1])
    except UserError as error:
        print(error, flush=True)
        return 1
    return 0


def _prepare(sweep: str, home: Path) -> None:
    layout = Layout(home)
    prepared: set[tuple[str, str]] = set()
    notes: dict[str, None] = {}  # in order, each once
    for folder in current_runs(layout, sweep):
        if is_imported(folder):
            continue
        spec = spec_of(folder)
        key = (spec.task.model_dump_json(), spec.model.model_dump_json())
        if key not in prepared:
            notes |= dict.fromkeys(data_notes(prepare_data(spec, home)))
            if not is_prepared(spec, home):
                from rpg.models.initial_policy import prepare_model  # noqa: PLC0415 (torch, which takes seconds)

                prepare_model(spec, home, functools.partial(print, flush=True))
            prepared.add(key)
        if not lengths_checked(spec, home).exists():
            from rpg.models.initial_policy import require_lengths  # noqa: PLC0415 (as above)

            require_lengths(spec, home)
    layout.write_data_notes(sweep, list(notes))


if __name__ == "__main__":
    sys.exit(main())
