"""What the loss did to each token: a response of one variant, or of two side by side on the same
prompt."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.view import View, choose_sweep, series_labels
from dashboard.widgets import Nothing, choose, rows_of, show_chart, show_element, show_legend
from rpg.report import charts
from rpg.store import RunFolder
from rpg.store.token_records import CLIPPED, VALUES, read_records, recorded_steps

COLOURS = {
    "slope of the loss": "slope",
    "log importance ratio": "ratio",
    "KL to the reference, nats": "kl",
    "advantage": "advantage",
    "log-probability, policy": "policy",
    "log-probability, old policy": "old",
    "log-probability, sampler": "sampler",
    "log-probability, reference": "reference",
    "policy minus sampler": "drift",
}
Run = tuple[str, str]
"""A variant's label, and a seed."""
NO_RECORDS = (
    "No records of tokens. Set training.token_records.every in a run or sweep file (how "
    "many steps from one record to the "
    "next); they are kept from then on."
)


def page(view: View) -> None:
    first, second, third, fourth = st.columns([2, 2, 2, 2])
    sweep = choose_sweep(view, first)
    names = {key.variant: label for key, label in series_labels(view, [sweep]).items()}
    folders = {
        (names[row.variant], str(row.seed)): view.layout.run(sweep, row.run)
        for row in view.ask("runs", sweep).itertuples()
        if row.variant in names
    }
    steps = {key: recorded_steps(folder) for key, folder in folders.items()}
    with_records = {label for (label, _), found in steps.items() if found}
    recorded = [label for label in dict.fromkeys(names.values()) if label in with_records]
    if not recorded:
        raise Nothing(NO_RECORDS)
    mine = choose("Variant", recorded, "variant", column=second)
    companion = _companion(mine, recorded, steps, folders)
    other = choose("Beside", ["none", *recorded], "beside", companion, column=third)
    pair = [mine] if other in ("none", mine) else [mine, other]
    seeds = [
        seed
        for label, seed in steps
        if label == mine and all(steps.get((one, seed)) for one in pair)
    ]
    seed = choose("Seed", seeds, "seed", column=fourth)
    common = sorted(set.intersection(*(set(steps[label, seed]) for label in pair))) if seed else []
    first, second, third, fourth = st.columns([1, 3, 1, 3])
    step = choose(
        "Step", [str(step) for step in common], "step", str(common[-1]) if common else None, first
    )
    if not step:
        raise Nothing("These variants have no recorded step of one seed in common.")
    rows = {label: read_records(folders[label, seed], int(step)) for label in pair}
    prompts = {row["prompt"]: None for row in rows[mine]}
    of_both = set.intersection(*({row["prompt"] for row in part} for part in rows.values()))
    shared = [text for text in prompts if text in of_both]
    prompt = choose("Prompt", shared or list(prompts), "prompt", column=second)
    chosen = {
        label: [row for row in part if row["prompt"] == prompt] for label, part in rows.items()
    }
    sample = choose(
        "Response", [str(row["sample"]) for row in chosen[mine]], "sample", column=third
    )
    by = choose("Colour", list(COLOURS), "colour", column=fourth)
    shown = {
        label: row for label, part in chosen.items() for row in part if str(row["sample"]) == sample
    }
    _show_responses(shown, COLOURS[by], by)
    for label in set(pair) - set(shown):
        st.text(f"{label} has no record of such a response to this prompt at step {step}.")
    st.text(f"All recorded tokens of step {step}:")
    show_legend(list(names.values()), pair)
    for name, column in zip(("ratio", "advantage"), rows_of(2, 2), strict=True):
        values = {
            label: [value for row in part for value in row[name]] for label, part in rows.items()
        }
        with column:
            show_chart(charts.histogram(values, list(names.values()), name), f"histogram {name}")


def _companion(
    mine: str,
    recorded: Sequence[str],
    steps: Mapping[Run, list[int]],
    folders: Mapping[Run, RunFolder],
) -> str:
    """The first variant that has records of a prompt in common with this one at the last step which
    both recorded."""
    for label, seed in steps:
        both = set(steps[label, seed]) & set(steps.get((mine, seed), ()))
        if label != mine and both:
            pair = [read_records(folders[one, seed], max(both)) for one in (mine, label)]
            if set.intersection(*({row["prompt"] for row in part} for part in pair)):
                return label
    return next((label for label in recorded if label != mine), "none")


def _show_responses(shown: Mapping[str, Mapping[str, Any]], field: str, heading: str) -> None:
    """Blue below zero, orange above, as strong as its share of the largest value of all the
    responses."""
    values = {label: _values(row, field) for label, row in shown.items()}
    finite = [abs(value) for part in values.values() for value in part if math.isfinite(value)]
    most = max(finite, default=0.0) or 1.0
    for (label, row), column in zip(shown.items(), rows_of(len(shown), 2), strict=True):
        tokens = [
            (text, _colour(value / most), _title(row, place), row["clipped"][place])
            for place, (text, value) in enumerate(zip(row["tokens"], values[label], strict=True))
        ]
        with column, st.container(border=True):
            size = f"{len(tokens)} tokens, optimizer step {row['optimizer_step']}"
            st.text(f"{label}: reward {row['reward']:g}, {size}")
            show_element("response", tokens=tokens)
    st.text(
        f"Colour: {heading}, from blue (−{most:.3g}) over none (0) to orange ({most:.3g}). "
        "Underlined with a wavy line: clipped, so without a gradient from the advantage. Hover "
        "over a token for its numbers."
    )
    if field == "kl":
        st.text(
            "The KL of a token is an estimate: its importance ratio times k3. If the loss has a KL "
            "of whole distributions, it is the sum over the vocabulary instead."
        )


def _values(row: Mapping[str, Any], field: str) -> Sequence[float]:
    if field == "ratio":
        return [math.log(max(value, 1e-9)) for value in row["ratio"]]
    if field == "drift":
        return [a - b for a, b in zip(row["policy"], row["sampler"], strict=True)]
    return list(row[field])


def _colour(share: float) -> str:
    red, green, blue = (230, 120, 0) if share > 0 else (0, 110, 200)
    return f"rgba({red}, {green}, {blue}, {min(1.0, abs(share)) * 0.75:.3f})"


def _title(row: Mapping[str, Any], place: int) -> str:
    lines = [f"{name}: {row[name][place]:.5g}" for name in VALUES]
    clipped = CLIPPED[row["clipped"][place]]
    return "\n".join([*lines, *([f"clipped: {clipped}"] if clipped else [])])
