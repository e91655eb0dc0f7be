"""How far a study is, and what a reader should know about its tuning, from its records and runs."""

from collections.abc import Iterator

from rpg.report.format import accuracy, measured
from rpg.store import Layout
from rpg.study.registration import registration
from rpg.study.trials import read_study, tried, tuned, tunings_from
from rpg.study.tuning import equal_settings, few_searches, remarks, winner

headings = ["Variant", "Trials", "Finished", "Pruned", "Failed", "Best", "Settings"]


def state(layout: Layout, study: str) -> Iterator[list[str]]:
    """A row of `headings` per variant."""
    record = read_study(layout, study)
    total = record["spec"]["tune"]["trials"] * record["searches"]
    for tuning in tunings_from(record):
        trials = tried(layout, study, tuning)
        states = [trial.state for trial in trials]
        best = winner(trials)
        row = [tuning.variant, f"{len(trials)} of {total}"]
        row += [str(states.count(name)) for name in ("finished", "pruned", "failed")]
        if best is None:
            row += ["", ""]
        else:
            settings = []
            for name, value in best.settings.items():
                text = measured(value) if isinstance(value, float) else str(value)
                settings.append(f"{name}={text}")
            row += [accuracy(best.objective), ", ".join(settings)]
        yield row


def sentences(layout: Layout, study: str) -> Iterator[str]:
    """What a reader should know about the searches, a sentence each."""
    record = read_study(layout, study)
    for tuning in tunings_from(record):
        ended_searches = tuned(layout, study, tuning)
        if not ended_searches:
            continue
        for number, trials in enumerate(ended_searches, 1):
            if winner(trials) is None:
                yield (
                    f"{tuning.variant}: search {number} has no finished trial, so it has no "
                    "settings to compare"
                )
        yield from remarks(tuning.variant, tuning.space, ended_searches)
    caution = few_searches(record["searches"], len(record["spec"]["report"]["seeds"]))
    if caution:
        yield caution
    registered = registration(layout, study)
    if registered:
        runs = [(run["variant"], run["run_id"]) for run in registered.runs.values()]
        of_variants = {
            name: [run for of, run in runs if of == name] for name in registered.variants
        }
        yield from equal_settings(of_variants)
