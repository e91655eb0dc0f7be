"""pass@k, maj@k and how many different right answers there are: sweep `diversity`."""

from __future__ import annotations

from typing import Any

import altair as alt
import duckdb
import numpy as np
import pandas

from benchmarks.findings.shared import Found, differences, judged
from rpg import stats
from rpg.report import charts
from rpg.report import frontier as frontier_report
from rpg.report.summary import summarise
from rpg.store import queries

SHOWN_K = (1, 8, 32)


def diversity(db: duckdb.DuckDBPyConnection, sweep: str = "diversity") -> Found:
    table = judged(db, sweep)
    if table.empty:  # one benchmark has no mean over several
        table = summarise(db, sweep).table
    names = {"initial": "the initial model"} | dict(
        zip(table["variant"], table["label"], strict=True)
    )
    first = table["variant"].iloc[0]
    measured = {
        name: frontier_report.diversity(
            db, sweep, *((first, ("pass", "maj"), 0) if name == "initial" else (name,))
        )
        for name in names
    }
    found = {
        name: distinct(db, sweep, *((first, 0) if name == "initial" else (name, None)))
        for name in names
    }
    heads = [
        *(f"pass@{k}" for k in SHOWN_K),
        f"maj@{SHOWN_K[-1]}",
        f"right answers in {SHOWN_K[-1]}",
    ]
    lines = ["| variant | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for name, label in names.items():
        cells = [stats.accuracy(measured[name]["pass"][k]) for k in SHOWN_K]
        cells.append(stats.accuracy(measured[name]["maj"][SHOWN_K[-1]]))
        texts = [f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in cells]
        count = stats.crossed(found[name])
        lines.append(
            f"| {label} | "
            + " | ".join([*texts, f"{count.mean:.2f} [{count.low:.2f}, {count.high:.2f}]"])
            + " |"
        )
    tests: list[tuple[str, str, str, Any, Any]] = []
    for beta in ("0.01", "0.03", "0.1"):
        pair = (f"rpg-reinforce-urkl beta={beta}", f"rpg-reinforce-ufkl beta={beta}")
        for k in (SHOWN_K[0], SHOWN_K[-1]):
            ours, theirs = (measured[name]["pass"][k] for name in pair)
            tests.append((*pair, f"pass@{k}", ours, theirs))
        tests.append((*pair, heads[-1], found[pair[0]], found[pair[1]]))
    free, last = "rpg-reinforce-urkl beta=0", SHOWN_K[-1]
    for what, ours, theirs in (
        (heads[0], measured[free]["pass"][1], measured["initial"]["pass"][1]),
        (f"pass@{last}", measured[free]["pass"][last], measured["initial"]["pass"][last]),
        (f"maj@{last}", measured[free]["maj"][last], measured["initial"]["maj"][last]),
        (heads[-1], found[free], found["initial"]),
    ):
        tests.append((free, "initial", what, ours, theirs))
    told = [
        (f"{names[name]}: {what}", names[against], ours, theirs)
        for name, against, what, ours, theirs in tests
    ]
    lines += ["", *differences(("variant", "against"), told)]
    drawn = {name: label.replace("RPG-REINFORCE-", "") for name, label in names.items()}
    labels = list(drawn.values())
    trained = {name: label for name, label in drawn.items() if name != "initial"}
    data = pandas.concat(
        [
            frontier_report.over_k(db, sweep, {first: drawn["initial"]}, step=0),
            frontier_report.over_k(db, sweep, trained),
        ]
    )
    panels = [
        charts.over_k(
            data[data["measure"] == measure], labels, heading=f"{measure}@k", legend=True
        ).properties(width=380, height=300)
        for measure in ("pass", "maj")
    ]
    return Found("\n".join(lines), alt.hconcat(*panels, spacing=36))


def distinct(
    db: duckdb.DuckDBPyConnection, sweep: str, variant: str, step: int | None
) -> list[np.ndarray]:
    """How many different right answers a problem's samples hold: an array (seeds, problems) per
    benchmark."""
    rows = queries.answers(db, sweep, frontier_report.checkpoints(db, sweep, variant, step))
    found = []
    for _, part in rows.groupby("benchmark", sort=False):
        right = part.assign(extracted=part["extracted"].where(part["correct"]))
        counts = right.groupby(["run", "problem_id"])["extracted"].nunique()
        found.append(counts.to_numpy(float).reshape(part["run"].nunique(), -1))
    return found
