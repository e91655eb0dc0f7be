"""python -m rpg.backends.local.prepare SWEEP_DIR: data and initial models of all runs of a sweep, once each.

Exit codes: 0 all there, 1 something cannot be had (the last line of the output says what and why).
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path

from rpg.processes import die_with_parent


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m rpg.backends.local.prepare", description=__doc__)
    parser.add_argument("sweep", type=Path, help="the sweep's folder, with a folder per run")
    parser.add_argument("--home", type=Path, help="the data folder (default: two levels above SWEEP_DIR)")
    parser.add_argument("--detached", action="store_true", help="go on when the parent process ends")
    options = parser.parse_args(arguments)
    if not options.detached:
        die_with_parent()

    from rpg.backends.manifest import spec_of
    from rpg.errors import UserError
    from rpg.models.warm_start_cache import is_prepared, lengths_checked
    from rpg.store.current import current_runs, is_imported
    from rpg.store.layout import Layout
    from rpg.tasks import DataError, Splits
    from rpg.tasks.preparation import data_files, data_notes, prepare_data, read_problems

    sweep = options.sweep.resolve()
    home = (options.home or sweep.parents[1]).absolute()
    say = functools.partial(print, flush=True)
    seen, notes, layout = set(), {}, Layout(home)
    try:
        for folder in current_runs(layout, sweep.name):
            if is_imported(folder):
                continue
            spec = spec_of(folder)
            key = (spec.task.model_dump_json(), spec.model.model_dump_json())
            if key not in seen:
                prepared = prepare_data(spec, home)
                notes |= dict.fromkeys(data_notes(prepared))
                if not is_prepared(spec, home):
                    from rpg.models.initial_policy import prepare_model  # torch, which takes seconds

                    prepare_model(spec, home, say)
                seen.add(key)
            mark = lengths_checked(spec, home)
            if not mark.exists():  # a training would come upon a prompt that is too long some day, and fail
                from rpg.models.initial_policy import check_lengths

                files = data_files(spec, home)
                held_out = {name: read_problems(path) for name, path in files.benchmarks.items()}
                if too_long := check_lengths(spec, Splits(read_problems(files.train), held_out), home):
                    raise DataError(too_long)
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
        layout.write_data_notes(sweep.name, list(notes))
    except UserError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
