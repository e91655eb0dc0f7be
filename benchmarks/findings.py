"""The figures and tables of docs/findings.md, from stored results.

    rpg sweep weighting && rpg sweep staleness             # the sweeps that the page has, into one data folder
    rpg study directions                                   # and its studies
    python -m benchmarks.findings [--home DIR]

Draws docs/findings/<sweep or study>.png and writes the tables between the marks of docs/findings.md; of a study, record and
trials are kept in docs/results/studies/. Sweeps and studies that the data folder does not hold are left as they are. Prose
is written by hand: read it again when a number changes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import duckdb
import numpy as np
import pandas
import vl_convert

from benchmarks.documented import P_VALUE, below
from rpg import stats
from rpg.report import charts, tables, theme
from rpg.report import frontier as frontier_report
from rpg.report.summary import MEAN, Summary, history, summarise
from rpg.store import Layout, queries
from rpg.store.database import build, connect
from rpg.study import study_report
from rpg.study.trials import studies

ROOT = Path(__file__).parents[1]
PAGE, PICTURES = ROOT / "docs" / "findings.md", ROOT / "docs" / "findings"


class Found(NamedTuple):
    """What a sweep says: blocks of Markdown, and a figure."""

    text: str
    figure: alt.Chart


def spending(summary: Summary) -> str:
    """How unequally the variants have spent, and which verdicts change at equal tokens."""
    equal = next((one for one in summary.equal if one.axis == "tokens"), None)
    if equal is None and not summary.spending:
        tokens = summary.table["tokens"]
        return f"\nEqual spending: {tokens.min():,.0f} to {tokens.max():,.0f} tokens each."
    if equal is None:
        return f"\n{summary.spending}"
    wanted = summary.table.drop_duplicates("variant", keep="last").set_index("variant")["verdict"]
    changed = [
        f"{row.label} ({row.difference:+.3f}, {row.verdict})"
        for row in equal.table.itertuples()
        if row.verdict and row.verdict != wanted[row.variant]
    ]
    but = f" are the same except for {', '.join(changed)}" if changed else " are all the same"
    if len(changed) > 4:
        but = f" of {len(changed)} of {(equal.table['verdict'] != '').sum()} variants change"
    return f"\n{summary.spending} At {equal.budget:,.0f} tokens each, the verdicts{but}."


def judged(db: duckdb.DuckDBPyConnection, sweep: str) -> pandas.DataFrame:
    """The report's table of the mean accuracy, a row per variant."""
    table = summarise(db, sweep).table
    return table[table["benchmark"] == MEAN]


Test = tuple[str, str, list[np.ndarray], list[np.ndarray]]
"""Two descriptions, and their scores as `rpg.stats` takes them: an array (seeds, problems) per benchmark."""


def pairs(db: duckdb.DuckDBPyConnection, sweep: str, asked: Sequence[tuple[str, str]]) -> str:
    """Paired differences that the sweep's own baseline does not show."""
    labels = {row.variant: row.label for row in summarise(db, sweep).table.itertuples()}
    scores = {
        name: accuracies(db, sweep, name) for name in dict.fromkeys(one for pair in asked for one in pair)
    }
    tests = [(labels[one], labels[other], scores[one], scores[other]) for one, other in asked]
    return "\n".join(differences(("variant", "against"), tests))


def accuracies(db: duckdb.DuckDBPyConnection, sweep: str, variant: str) -> list[np.ndarray]:
    """A variant's last accuracies: an array (seeds, problems) per benchmark."""
    return frontier_report.diversity(db, sweep, variant, ("pass",))["pass"][1]


def differences(heads: tuple[str, str], tests: Sequence[Test]) -> list[str]:
    """A table of paired differences: p by Holm over the table, and intervals that hold together. Counts are tested as
    shares of the largest."""
    scales = [max(1.0, *(float(scores.max()) for scores in (*mine, *theirs))) for *_, mine, theirs in tests]
    found = [
        stats.family([np.stack([one, other])[None] / scale for one, other in zip(theirs, mine, strict=True)])
        for (*_, mine, theirs), scale in zip(tests, scales, strict=True)
    ]
    corrected = stats.holm(np.array([one.p_values().item() for one in found]))
    lines = [f"| {heads[0]} | {heads[1]} | difference | p, corrected |", "|---|---|--:|--:|"]
    for (one, other, *_), result, p, scale in zip(tests, found, corrected, scales, strict=True):
        low, high = (scale * bound.item() for bound in result.intervals(stats.ERROR / len(tests)))
        difference = scale * result.difference.item()
        lines.append(f"| {one} | {other} | {difference:+.3f} [{low:+.3f}, {high:+.3f}] | {below(p)} |")
    return lines


def short(label: str) -> str:
    """A variant's label as a figure has room for."""
    label = re.sub(r"\(advantage=gae\(.*\)\)", ", critic", label)
    return label.replace("GRPO (corrected KL)", "GRPO, corrected").replace("correction ", "")


def forest(table: pandas.DataFrame, title: str) -> alt.Chart:
    """Accuracy of each variant with its 95 % interval."""
    data = table[["label", "last", "low", "high"]].assign(label=[short(x) for x in table["label"]])
    order = data.sort_values("last", ascending=False)["label"].tolist()
    y = alt.Y("label:N", sort=order, title=None, axis=alt.Axis(labelLimit=360, domain=False, ticks=False))
    base = alt.Chart(data)
    rule = base.mark_rule(strokeWidth=2, color="#0072B2").encode(
        x=alt.X("low:Q", title="mean accuracy at the last step, 95 % interval", scale=alt.Scale(zero=False)),
        x2="high:Q", y=y,
    )  # fmt: skip
    points = base.mark_point(filled=True, size=70, color="#0072B2", opacity=1).encode(x="last:Q", y=y)
    return alt.layer(rule, points).properties(width=520, height=alt.Step(24), title=title)


def plain(table: pandas.DataFrame) -> str:
    """The report's columns as Markdown."""
    lines = [
        "| variant | seeds | accuracy | difference to the baseline | p, corrected | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for row in table.itertuples():
        difference, p, verdict = "baseline", "", ""
        if isinstance(row.verdict, str) and row.verdict:
            half = (row.difference_high - row.difference_low) / 2
            difference = f"{row.difference:+.3f} ± {half:.3f}"
            p, verdict = below(row.p_corrected), row.verdict
        lines.append(
            f"| {row.label} | {row.seeds} | {row.last:.3f} [{row.low:.3f}, {row.high:.3f}] | {difference} | {p} | "
            f"{verdict} |"
        )
    return "\n".join(lines)


def _by_loss(losses: list[str]) -> alt.Color:
    """A colour for each."""
    scale = alt.Scale(domain=losses, range=list(theme.COLOURS[: len(losses)]))
    return alt.Color("loss:N", title=None, scale=scale)


def _forest_of(sweep: str, title: str, asked: Sequence[tuple[str, str]] = ()) -> Callable[..., Found]:
    def find(db: duckdb.DuckDBPyConnection) -> Found:
        table = judged(db, sweep)
        text = plain(table)
        if asked:
            text += "\n\n" + pairs(db, sweep, asked)
        return Found(text, forest(table, title))

    return find


# --- staleness ----------------------------------------------------------------------------------------


def staleness(db: duckdb.DuckDBPyConnection) -> Found:
    table = judged(db, "staleness")
    split = table["label"].str.extract(r"^(?P<loss>.*), staleness (?P<rollouts>\d+)$")
    data = table.assign(loss=[short(x) for x in split["loss"]], rollouts=split["rollouts"].astype(int))
    shown = data[["loss", "rollouts", "last", "low", "high"]]
    order = sorted(shown["rollouts"].unique())
    lines = [
        "| | " + " | ".join(f"staleness {k}" for k in order) + " |",
        "|---|" + "--:|" * len(order),
    ]
    for loss, rows in shown.groupby("loss", sort=False):
        at = rows.set_index("rollouts")
        cells = [f"{at.loc[k, 'last']:.3f} [{at.loc[k, 'low']:.3f}, {at.loc[k, 'high']:.3f}]" for k in order]
        lines.append(f"| {loss} | " + " | ".join(cells) + " |")
    most = order[-1]
    asked = [
        (f"grpo-corrected rollout.staleness={k}", f"grpo rollout.staleness={k}") for k in order
    ] + [
        (f"{name}(clip=none) rollout.staleness={most}", f"{name} rollout.staleness={most}")
        for name in ("grpo", "grpo-corrected")
    ] + [
        (f"grpo-corrected(clip=none) rollout.staleness={most}", "grpo-corrected(clip=none) rollout.staleness=0"),
        (f"grpo(clip=none) rollout.staleness={most}", "grpo(clip=none) rollout.staleness=0"),
        (f"grpo-corrected(clip=none) rollout.staleness={most}", f"grpo(clip=none) rollout.staleness={most}"),
    ]  # fmt: skip
    losses = list(dict.fromkeys(shown["loss"]))
    color = _by_loss(losses)
    x = alt.X(
        "rollouts:O",
        title="staleness: rollouts between the sampler and the policy",
        axis=alt.Axis(labelAngle=0),
    )
    beside = alt.XOffset("loss:N", sort=losses, scale=alt.Scale(paddingOuter=1))
    y = alt.Y("last:Q", title="mean accuracy at the last step", scale=alt.Scale(zero=False))
    base = alt.Chart(shown).encode(x=x, xOffset=beside, color=color)
    figure = alt.layer(
        base.mark_line(strokeWidth=1.6).encode(y=y),
        base.mark_point(filled=True, size=60, opacity=1).encode(y=y),
        base.mark_rule(strokeWidth=1).encode(
            y=alt.Y("low:Q", title="mean accuracy at the last step"), y2="high:Q"
        ),
    ).properties(width=520, height=260, title="Accuracy against the age of the samples")
    return Found("\n".join(lines) + "\n\n" + pairs(db, "staleness", asked), figure)


# --- frontier -----------------------------------------------------------------------------------------

DIRECTIONS = {
    "policy_to_initial": "KL(policy ‖ initial)",
    "initial_to_policy": "KL(initial ‖ policy)",
}


def frontier(db: duckdb.DuckDBPyConnection, sweep: str = "frontier") -> Found:
    data = db.execute(
        """SELECT variant, seed, direction, accuracy, pass_at_k, per_response, per_response_se FROM frontier
           WHERE sweep = $1 AND step = (SELECT max(step) FROM frontier WHERE sweep = $1)""",
        [sweep],
    ).df()
    split = data["variant"].str.extract(r"^(?P<loss>\S+) beta=(?P<beta>\S+)$")
    data = data.assign(loss=split["loss"], beta=split["beta"].astype(float))
    means = data.groupby(["loss", "beta", "direction"], sort=False).agg(
        accuracy=("accuracy", "mean"), kl=("per_response", "mean"), seeds=("seed", "nunique"),
        spread=("per_response", "std"), passed=("pass_at_k", "mean"),
    ).reset_index()  # fmt: skip
    wide = means.pivot(index=["loss", "beta"], columns="direction", values=["kl", "spread"])
    one = means.drop_duplicates(["loss", "beta"]).set_index(["loss", "beta"])
    lines = [
        "| loss | β | accuracy | pass@4 | KL(policy‖initial) | KL(initial‖policy) |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for (loss, beta), row in wide.sort_index().iterrows():
        cells = [f"{row['kl', d]:.2f} ± {row['spread', d]:.2f}" for d in DIRECTIONS]
        at = one.loc[(loss, beta)]
        lines.append(
            f"| {loss} | {beta:g} | {at['accuracy']:.3f} | {at['passed']:.3f} | " + " | ".join(cells) + " |"
        )
    lines += ["", "KL in nats per response, ± the standard deviation over seeds.", ""]
    lines += [*_matched(db, sweep, data), "", *_same_beta(db, sweep, sorted(data["variant"].unique())), ""]
    lines.append(pairs(db, sweep, [
        (f"{one} beta=0.3", f"{other} beta=0.3")
        for one, other in (
            ("rpg-reinforce-fkl", "rpg-reinforce-ufkl"), ("rpg-reinforce-rkl", "rpg-reinforce-urkl"),
            ("rpg-ufkl", "rpg-reinforce-ufkl"), ("rpg-urkl", "rpg-reinforce-urkl"),
        )
    ]))  # fmt: skip
    none = means[means["beta"] == 0]
    losses = sorted(means.loc[means["loss"].str.contains("reinforce"), "loss"].unique())
    paths = means[means["loss"].isin(losses) & (means["beta"] > 0)]
    ends = pandas.concat([none.assign(loss=loss) for loss in losses])
    paths = pandas.concat([paths, ends]).assign(text=lambda f: f["beta"].map("β {:g}".format))
    color = _by_loss(losses)
    panels = []
    for direction, title in DIRECTIONS.items():
        part = paths[paths["direction"] == direction]
        x = alt.X("kl:Q", title=f"{title}, nats per response", scale=alt.Scale(zero=True))
        y = alt.Y("accuracy:Q", title="mean accuracy", scale=alt.Scale(zero=False))
        base = alt.Chart(part).encode(x=x, y=y, color=color)
        panels.append(
            alt.layer(
                base.mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(filled=True, size=45)).encode(
                    order="beta:Q"
                ),
                base.mark_text(dx=6, dy=9, align="left", fontSize=9).encode(text="text:N"),
            ).properties(width=380, height=280, title=title)
        )
    return Found("\n".join(lines), alt.hconcat(*panels, spacing=30))


def _same_beta(db: duckdb.DuckDBPyConnection, sweep: str, variants: Sequence[str]) -> list[str]:
    """Reverse minus forward forms at the same beta, the mean over the forms that the sweep has there."""
    groups: dict[tuple[str, str], list[list[np.ndarray]]] = {}
    for variant in variants:
        loss, _, beta = variant.partition(" beta=")
        if float(beta):
            scores = frontier_report.diversity(db, sweep, variant, ("pass",))["pass"][1]
            groups.setdefault((beta, loss[-3:]), []).append(scores)
    betas = sorted({beta for beta, _ in groups}, key=float)
    forms = {beta: len(groups[beta, "rkl"]) for beta in betas}
    means = {key: [np.mean(arrays, axis=0) for arrays in zip(*of, strict=True)] for key, of in groups.items()}
    tests = [
        (f"β = {beta}", f"{forms[beta]} of each direction", means[beta, "rkl"], means[beta, "fkl"])
        for beta in betas
    ]
    return differences(("reverse − forward at the same", "forms"), tests)


def _matched(db: duckdb.DuckDBPyConnection, sweep: str, data: pandas.DataFrame) -> list[str]:
    """Reverse minus forward form at the same KL; accuracies are interpolated along each seed's path over beta."""
    names = {
        form: [*(f"rpg-reinforce-{form} beta={beta}" for beta in ("0.03", "0.1", "0.3", "1")), "rpg-reinforce-urkl beta=0"]
        for form in ("urkl", "ufkl")
    }  # fmt: skip
    scores = {form: [accuracies(db, sweep, name) for name in of] for form, of in names.items()}
    tests = []
    for direction, title in DIRECTIONS.items():
        distances = data[data["direction"] == direction].pivot(
            index="variant", columns="seed", values="per_response"
        )
        paths = {form: distances.loc[of].to_numpy() for form, of in names.items()}  # (variants, seeds)
        nearest = max(path.min(axis=0).max() for path in paths.values())
        farthest = min(path.max(axis=0).min() for path in paths.values())
        for nats in np.linspace(nearest, farthest, 5)[1:-1]:
            reverse, forward = (_at(nats, paths[form], scores[form]) for form in names)
            tests.append((f"{title} = {nats:.2f}", "URKL − UFKL", reverse, forward))
    return differences(("reverse − forward at the same, in nats", "forms"), tests)


def _at(nats: float, path: np.ndarray, scores: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """Scores where each seed's path (variants, seeds) passes this KL: a mixture of the two variants around it."""
    order = path.argsort(axis=0)
    weights = np.array([
        [np.interp(nats, seed[places], places == variant) for seed, places in zip(path.T, order.T, strict=True)]
        for variant in range(len(path))
    ])  # fmt: skip
    return [np.einsum("vs,vsp->sp", weights, np.array(benchmark)) for benchmark in zip(*scores, strict=True)]


# --- clip ---------------------------------------------------------------------------------------------


def clip(db: duckdb.DuckDBPyConnection, sweep: str = "clip") -> Found:
    """The variants, and what each bound does by itself: means over the other bounds."""
    table = judged(db, sweep)
    axes = {one["variant"]: one["axes"] for one in queries.manifests(db, sweep).values()}
    scores = {variant: accuracies(db, sweep, variant) for variant in table["variant"]}

    def mean(bound: str, value: float) -> list[np.ndarray]:
        mine = [scores[name] for name in scores if axes[name][f"algorithm.clip.{bound}"] == value]
        return [np.mean(arrays, axis=0) for arrays in zip(*mine, strict=True)]

    asked = [("high", 0.5, 0.1), ("high", 0.28, 0.1), ("low", 0.4, 0.1), ("low", 0.2, 0.1), ("c", 10.0, 2.0)]
    tests = [
        (f"{bound} = {one:g}", f"{other:g}", mean(bound, one), mean(bound, other))
        for bound, one, other in asked
    ]
    text = plain(table) + "\n\n" + "\n".join(differences(("mean over the other bounds", "against"), tests))
    return Found(
        text, forest(table, "RPG-Style Clip: 18 bounds, RPG-REINFORCE-URKL, 16 optimizer steps per rollout")
    )


# --- diversity ----------------------------------------------------------------------------------------

SHOWN_K = (1, 8, 32)


def diversity(db: duckdb.DuckDBPyConnection, sweep: str = "diversity") -> Found:
    table = judged(db, sweep)
    if table.empty:  # one benchmark has no mean over several
        table = summarise(db, sweep).table
    names = {"initial": "the initial model"} | dict(zip(table["variant"], table["label"], strict=True))
    first = table["variant"].iloc[0]
    measured = {
        name: frontier_report.diversity(
            db, sweep, *((first, ("pass", "maj"), 0) if name == "initial" else (name,))
        )
        for name in names
    }
    found = {
        name: distinct(db, sweep, *((first, 0) if name == "initial" else (name, None))) for name in names
    }
    heads = [*(f"pass@{k}" for k in SHOWN_K), f"maj@{SHOWN_K[-1]}", f"right answers in {SHOWN_K[-1]}"]
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


def distinct(db: duckdb.DuckDBPyConnection, sweep: str, variant: str, step: int | None) -> list[np.ndarray]:
    """How many different right answers a problem's samples hold: an array (seeds, problems) per benchmark."""
    rows = queries.answers(db, sweep, frontier_report.checkpoints(db, sweep, variant, step))
    found = []
    for _, part in rows.groupby("benchmark", sort=False):
        right = part.assign(extracted=part["extracted"].where(part["correct"]))
        counts = right.groupby(["run", "problem_id"])["extracted"].nunique()
        found.append(counts.to_numpy(float).reshape(part["run"].nunique(), -1))
    return found


# --- distillation -------------------------------------------------------------------------------------

TO_TEACHER = {"kl_policy_to_ref": "KL(policy ‖ teacher)", "kl_ref_to_policy": "KL(teacher ‖ policy)"}


def distillation(db: duckdb.DuckDBPyConnection, sweep: str = "distillation") -> Found:
    """Accuracy and both KLs to the teacher while the variants train; what the baseline's gain is at the first evaluation."""
    table = judged(db, sweep)
    labels = {row.variant: _distilled(row.label) for row in table.itertuples()}
    steps = [row[0] for row in db.execute(
        "SELECT DISTINCT step FROM evals WHERE sweep = ? AND step > 0 ORDER BY step", [sweep]).fetchall()]  # fmt: skip
    ends = steps[0], steps[-1]
    passed = {
        (name, step): frontier_report.diversity(db, sweep, name, ("pass",), step)["pass"]
        for name, step in product(labels, steps)
    }
    kls = db.execute(
        f"""SELECT r.variant, m.step, {", ".join(f"avg(m.{kl}) AS {kl}" for kl in TO_TEACHER)}
            FROM metrics m JOIN runs r USING (run) WHERE r.sweep = ? GROUP BY ALL ORDER BY ALL""", [sweep]
    ).df()  # fmt: skip
    kls = kls[kls["variant"] != "dr-grpo"]  # whose reference is no teacher
    heads = [*(f"step {step}" for step in steps), f"pass@4 at {steps[-1]}"]
    heads += [f"{title} at {step}" for title, step in product(TO_TEACHER.values(), ends)]
    lines = ["| variant | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for name, label in labels.items():
        cells = [f"{stats.accuracy(passed[name, step][1]).mean:.3f}" for step in steps]
        cells.append(f"{stats.accuracy(passed[name, steps[-1]][4]).mean:.3f}")
        at = kls[kls["variant"] == name].set_index("step")
        cells += [f"{at.loc[step, kl]:.4f}" if len(at) else "" for kl, step in product(TO_TEACHER, ends)]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    first = steps[0]
    tests: list[Test] = [
        (f"{labels[one]}, step {first}", labels[other], passed[one, first][1], passed[other, first][1])
        for one, other in (("opd-rkl", "opd"), ("gkd", "opd-jsd"), ("opd", "minillm"), ("opd", "dr-grpo"))
        if {one, other} <= labels.keys()
    ]
    text = plain(table.assign(label=table["variant"].map(labels)))
    text += "\n\n" + "\n".join([*lines, "", *differences(("variant", "against"), tests)])
    right = pandas.DataFrame(
        (labels[name], step, stats.accuracy(of[1]).mean) for (name, step), of in passed.items()
    ).set_axis(["loss", "step", "accuracy"], axis=1)
    color = _by_loss([*labels.values()])
    panels = [_over_steps(right, color, "accuracy", "mean accuracy", "linear")]
    drawn = kls.assign(loss=kls["variant"].map(labels))
    panels += [
        _over_steps(drawn, color, kl, f"{title}, nats per token", "log") for kl, title in TO_TEACHER.items()
    ]
    return Found(text, alt.hconcat(*panels, spacing=24))


def _over_steps(data: pandas.DataFrame, color: alt.Color, column: str, title: str, scale: str) -> alt.Chart:
    y = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(type=scale, zero=False))
    line = alt.Chart(data).mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(filled=True, size=25))
    x = alt.X("step:Q", title="step", axis=alt.Axis(tickMinStep=1))
    return line.encode(x=x, y=y, color=color).properties(width=270, height=260)


def _distilled(label: str) -> str:
    """The one variant that is no entry of the catalogue, by what it is."""
    return "k3 in the loss" if label.startswith("REINFORCE") else label


SWEEPS: dict[str, Callable[[duckdb.DuckDBPyConnection], Found]] = {
    "weighting": _forest_of(
        "weighting",
        "GRPO's KL term beside the exact forms, β = 0.5, reference: the initial model",
        [
            ("grpo(kl=objective(divergence=ufkl))", "grpo"),
            ("grpo(kl=objective(divergence=fkl))", "grpo(kl=objective(divergence=ufkl))"),
            ("grpo(kl=objective(divergence=rkl))", "grpo(kl=objective(divergence=urkl))"),
            ("rpg-reinforce-urkl", "rpg-reinforce-ufkl"),
        ],
    ),
    "staleness": staleness,
    "frontier": frontier,
    "diversity": diversity,
    "clip": clip,
    "reference": _forest_of(
        "reference",
        "Four reference schedules, RPG-REINFORCE-URKL, β = 0.01 and 1",
        [
            (
                f"rpg-reinforce-urkl beta={beta} reference={kind}",
                f"rpg-reinforce-urkl beta={beta} reference=fixed",
            )
            for beta in ("1", "0.01")
            for kind in ("old", "every_k(k=64)", "kl_above(kappa=0.05)")
        ],
    ),
    "quickstart": _forest_of(
        "quickstart",
        "Seven algorithms under a KL to the initial model that matters, β = 0.3",
        [
            ("rpg-reinforce-urkl(beta=0.3)", "rpg-reinforce-ufkl(beta=0.3)"),
            ("rpg-urkl(beta=0.3)", "rpg-ufkl(beta=0.3)"),
        ],
    ),
    "distillation": distillation,
    "distillation-words": partial(distillation, sweep="distillation-words"),
    "critic": _forest_of("critic", "PPO with a critic beside baselines without one"),
    "correction": _forest_of("correction", "Corrections for samples of four rollouts before"),
    "mismatch": _forest_of("mismatch", "Samplers of rounded weights"),
    "anchoring": _forest_of(
        "anchoring",
        "Four reference schedules under a forward and a reverse KL, β = 0.5",
        [
            (f"rpg-reinforce-urkl reference={kind}", f"rpg-reinforce-ufkl reference={kind}")
            for kind in ("old", "every_k(k=16)", "kl_above(kappa=0.05)", "fixed")
        ],
    ),
    "aggregation": _forest_of(
        "aggregation",
        "Normalised and unnormalised KL under two aggregations",
        [
            (
                "grpo loss_agg_mode=token-mean kl=objective(divergence=rkl)",
                "grpo loss_agg_mode=token-mean kl=objective(divergence=urkl)",
            ),
            (
                "grpo loss_agg_mode=seq-mean-token-mean kl=objective(divergence=fkl)",
                "grpo loss_agg_mode=seq-mean-token-mean kl=objective(divergence=ufkl)",
            ),
        ],
    ),
}


STUDIES = (
    "directions",
    "clip-bounds",
    "old-samples",
    "directions-operators",
    "old-samples-tools",
    "kl-forms-words",
)
KEPT = ROOT / "docs" / "results" / "studies"


def of_study(db: duckdb.DuckDBPyConnection, layout: Layout, study: str) -> str:
    """What was compared, at the last step and at equal tokens, and the settings that won. Keeps record, trials and the
    picture of the search."""
    material, folder = study_report.material(layout, study), layout.study_folder(study)
    plan = material.registered
    assert plan is not None and not plan.deviations
    summary = summarise(db, plan.sweep, past=history(layout, plan.sweep))
    grids = [tables.main_table(summary)]
    grids += [tables.equal_table(summary, equal) for equal in summary.equal if equal.axis == "tokens"]
    grids += study_report.search(material).grids
    text = "\n\n".join(f"{grid.title}:\n\n" + "\n".join(tables.markdown_grid(grid)) for grid in grids)
    KEPT.mkdir(parents=True, exist_ok=True)
    record = (folder / "registered.json").read_text("utf-8")
    (KEPT / f"{study}.json").write_text(
        re.sub(r'"/[^"]*/(configs/[^"]*)"', r'"\1"', record), "utf-8"
    )  # of any machine
    (KEPT / f"{study}.csv").write_bytes((folder / "report" / "trials.csv").read_bytes())
    (PICTURES / f"{study}.png").write_bytes((folder / "report" / "search-1.png").read_bytes())
    return f"{P_VALUE.sub(lambda p: below(float(p[0])), text)}\n\nRegistered with digest {plan.digest}."


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, help="data folder (default: $RPG_HOME or ./rpg-data)")
    options = parser.parse_args(list(arguments) if arguments is not None else None)
    layout = Layout.at(options.home)
    build(layout)
    page = PAGE.read_text(encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    with closing(connect(layout)) as db:
        held = set(layout.sweeps())
        for sweep, find in SWEEPS.items():
            if sweep not in held or mark(sweep) not in page:
                where = layout.home if sweep not in held else f"{PAGE.name}, or has no marks there"
                print(f"{sweep}: not in {where}; left as it is")
                continue
            found = find(db)
            drawing = vl_convert.vegalite_to_png(theme.themed(found.figure).to_dict(), scale=2)
            (PICTURES / f"{sweep}.png").write_bytes(drawing)
            page = insert(page, sweep, found.text + "\n" + spending(summarise(db, sweep)))
            print(f"{sweep}: written")
        for study in sorted(set(STUDIES) & set(studies(layout))):
            if mark(study) in page:
                page = insert(page, study, of_study(db, layout, study))
                print(f"{study}: written")
    PAGE.write_text(page, encoding="utf-8")


def mark(sweep: str) -> str:
    """The line of the page that a sweep's tables come after; `<!-- end -->` is the one they come before."""
    return f"<!-- results: {sweep} -->"


def insert(page: str, sweep: str, text: str) -> str:
    """The page with `text` between the marks of a sweep."""
    found = re.compile(rf"({re.escape(mark(sweep))}\n).*?(<!-- end -->)", re.DOTALL)
    return found.sub(lambda between: f"{between[1]}\n{text}\n\n{between[2]}", page)


if __name__ == "__main__":
    main()
