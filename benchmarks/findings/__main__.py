"""The figures and tables of docs/findings.md, from stored results.

    # the sweeps that the page has, into one data folder
    rpg sweep weighting && rpg sweep staleness
    rpg study directions                                   # and its studies
    python -m benchmarks.findings [--home DIR]

Draws docs/findings/<sweep or study>.png and writes the tables between the marks of
docs/findings.md. Of a study, record and trials are kept in docs/results/studies/; of some sweeps
accuracy and metrics by step in docs/results, which `python -m benchmarks.paired_seeds` compares.
Sweeps and studies that the data folder does not hold are left as they are. Prose is written by
hand: read it again when a number changes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import duckdb
import vl_convert

from benchmarks.documented import P_VALUE, below
from benchmarks.findings.distillation import distillation
from benchmarks.findings.diversity import diversity
from benchmarks.findings.kl_frontier import frontier
from benchmarks.findings.old_samples import clip, staleness
from benchmarks.findings.shared import (
    PAGE,
    PICTURES,
    ROOT,
    Found,
    by_step,
    compact,
    forest_of,
    spending,
)
from rpg.report import tables, theme
from rpg.report.summary import summarise, terms_of
from rpg.store import Layout
from rpg.store.database import build, connect
from rpg.study import study_report
from rpg.study.trials import studies

_URKL = "rpg-reinforce-urkl"


def erring(rate: float, beta: float) -> str:
    """The variant of `wrong-grader` with this rate of errors of both kinds."""
    corrupt = f"(false_positive={rate:g},false_negative={rate:g})"
    return f"rpg-urkl reward.corrupt={corrupt} beta={beta:g}"


SWEEPS: dict[str, Callable[[duckdb.DuckDBPyConnection], Found]] = {
    "weighting": forest_of(
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
    "reference": forest_of(
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
    "quickstart": forest_of(
        "quickstart",
        "Seven algorithms under a KL to the initial model that matters, β = 0.3",
        [
            ("rpg-reinforce-urkl(beta=0.3)", "rpg-reinforce-ufkl(beta=0.3)"),
            ("rpg-urkl(beta=0.3)", "rpg-ufkl(beta=0.3)"),
        ],
    ),
    "distillation": distillation,
    "distillation-words": partial(distillation, sweep="distillation-words"),
    "critic": forest_of("critic", "PPO with a critic beside baselines without one"),
    "correction": forest_of("correction", "Corrections for samples of four rollouts before"),
    "mismatch": forest_of("mismatch", "Samplers of rounded weights"),
    "anchoring": forest_of(
        "anchoring",
        "Four reference schedules under a forward and a reverse KL, β = 0.5",
        [
            (f"rpg-reinforce-urkl reference={kind}", f"rpg-reinforce-ufkl reference={kind}")
            for kind in ("old", "every_k(k=16)", "kl_above(kappa=0.05)", "fixed")
        ],
    ),
    "aggregation": forest_of(
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
    "on-policy": forest_of("on-policy", "The RPG losses with one optimizer step per rollout"),
    "kl-weighting": forest_of(
        "kl-weighting",
        "The importance weight of GRPO's KL, sixteen optimizer steps per rollout",
        [
            ("grpo(kl=loss(estimator=k3,weighted=score))", "grpo(kl=loss(estimator=k2))"),
            ("grpo", "grpo(kl=loss(estimator=k2))"),
            ("grpo", "grpo(kl=loss(estimator=k3,weighted=score))"),
        ],
    ),
    "clip-noise": forest_of(
        "clip-noise",
        "RPG-Style Clip at a tuned rate, RPG-REINFORCE-URKL",
        [(f"{_URKL} clip=(low=0.1,high=0.1,c=10)", f"{_URKL} clip=none")],
    ),
    "normalised": forest_of(
        "normalised",
        "Normalised and unnormalised KL where the reference is renewed, β = 0.5",
        [
            (f"rpg-reinforce-{one} reference={kind}", f"rpg-reinforce-{other} reference={kind}")
            for kind in ("old", "every_k(k=16)")
            for one, other in (("fkl", "ufkl"), ("rkl", "urkl"), ("urkl", "ufkl"))
        ],
    ),
    "ratio-levels": forest_of(
        "ratio-levels",
        "The importance ratio of a token, a prefix and a response",
        [
            (f"{_URKL} ratio=sequence", f"{_URKL} ratio=prefix"),
            (f"{_URKL}(clip=none) ratio=prefix", f"{_URKL}(clip=none) ratio=token"),
            (f"{_URKL}(clip=none) ratio=sequence", f"{_URKL}(clip=none) ratio=token"),
        ],
    ),
    "iso-compute": forest_of("iso-compute", "Prompts, responses and steps at 100,000 tokens"),
    "wrong-grader": forest_of(
        "wrong-grader",
        "A grader that errs both ways at one rate, RPG-URKL",
        [(erring(rate, 0.3), erring(0, 0.3)) for rate in (0.05, 0.1, 0.2, 0.35)],
    ),
}
BY_STEP = (
    "on-policy",
    "kl-weighting",
    "clip-noise",
    "normalised",
    "ratio-levels",
    "iso-compute",
    "wrong-grader",
)
"""Sweeps whose accuracies and metrics are kept in docs/results, a file for each."""


STUDIES = (
    "directions",
    "clip-bounds",
    "old-samples",
    "directions-operators",
    "old-samples-tools",
    "kl-forms-words",
)
RESULTS = ROOT / "docs" / "results"
KEPT = RESULTS / "studies"


def of_study(db: duckdb.DuckDBPyConnection, layout: Layout, study: str) -> str:
    """What was compared, at the last step and at equal tokens, and the settings that won. Keeps
    record, trials and the picture of the search."""
    material, folder = study_report.material(layout, study), layout.study_folder(study)
    plan = material.registered
    assert plan is not None and not plan.deviations
    summary = summarise(db, plan.sweep, terms=terms_of(layout, plan.sweep))
    grids = [tables.main_table(summary)]
    grids += [
        tables.equal_table(summary, equal) for equal in summary.equal if equal.axis == "tokens"
    ]
    grids += study_report.search(material).grids
    text = "\n\n".join(
        f"{grid.title}:\n\n" + "\n".join(tables.markdown_grid(grid)) for grid in grids
    )
    KEPT.mkdir(parents=True, exist_ok=True)
    record = (folder / "registered.json").read_text("utf-8")
    (KEPT / f"{study}.json").write_text(
        re.sub(r'"/[^"]*/(configs/[^"]*)"', r'"\1"', record), "utf-8"
    )  # of any machine
    (KEPT / f"{study}.csv").write_bytes((folder / "report" / "trials.csv").read_bytes())
    (PICTURES / f"{study}.png").write_bytes((folder / "report" / "search-1.png").read_bytes())
    return (
        f"{P_VALUE.sub(lambda p: below(float(p[0])), text)}\n\nRegistered with digest "
        f"{plan.digest}."
    )


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
            page = insert(page, sweep, tables_of(db, sweep, found))
            if sweep in BY_STEP:
                by_step(db, sweep).to_csv(RESULTS / f"{sweep}.csv", index=False)
            print(f"{sweep}: written")
        for study in sorted(set(STUDIES) & set(studies(layout))):
            if mark(study) in page:
                page = insert(page, study, of_study(db, layout, study))
                print(f"{study}: written")
    PAGE.write_text(page, encoding="utf-8")


def tables_of(db: duckdb.DuckDBPyConnection, sweep: str, found: Found) -> str:
    """What the page has between the marks of a sweep."""
    return compact(found.text + "\n" + spending(summarise(db, sweep)))


def mark(sweep: str) -> str:
    """The line of the page that a sweep's tables come after; `<!-- end -->` is the one they come
    before."""
    return f"<!-- results: {sweep} -->"


def insert(page: str, sweep: str, text: str) -> str:
    """The page with `text` between the marks of a sweep."""
    found = re.compile(rf"({re.escape(mark(sweep))}\n).*?(<!-- end -->)", re.DOTALL)
    return found.sub(lambda between: f"{between[1]}\n{text}\n\n{between[2]}", page)


if __name__ == "__main__":
    main()
