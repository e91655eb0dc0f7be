"""Graded samples for a published page: of each variant one seed at its last checkpoint, the same
problems first, as many as the budget holds."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpg.errors import plural
from rpg.report.sweep_report import json_element, packaged, rendered
from rpg.store import Layout, queries
from rpg.store.queries import Database
from rpg.store.samples import read_samples, unread_form

MEGABYTE = 1_000_000
"""Bytes."""


@dataclass(frozen=True)
class Evaluation:
    """The samples of a variant's checkpoint on a benchmark."""

    label: str
    seed: int
    step: int
    benchmark: str
    path: Path


@dataclass
class Samples:
    """What is published. `rows` have an index of `problems` in place of the problem's texts."""

    problems: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0
    size: int = 0
    """Bytes of all texts, without their names."""
    _places: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, evaluation: Evaluation, most: int) -> None:
        """The samples of an evaluation, the first of each problem first, up to `most` bytes."""
        rows = read_samples(evaluation.path).to_pylist()
        self.total += len(rows)
        end = self.size + most
        for row in sorted(rows, key=lambda row: row["sample"]):  # stable: problems as stored
            problem = self._place(evaluation.benchmark, row)
            new = problem == len(self.problems)
            text = {
                "problem": problem,
                "variant": evaluation.label,
                "seed": evaluation.seed,
                "step": evaluation.step,
                "sample": row["sample"],
                "correct": row["correct"],
                "unread": unread_form(row["correct"], row["reason"]) is not None,
                "extracted": row["extracted"],
                "reason": row["reason"],
                "tokens": row["tokens"],
                "truncated": row["truncated"],
                "response": row["response"],
            }
            texts = {
                "benchmark": evaluation.benchmark,
                "id": row["problem_id"],
                "text": row["problem"],
                "answer": row["answer"],
            }
            size = _size(text) + (_size(texts) if new else 0)
            if self.size + size > end:
                return
            if new:
                self._places[evaluation.benchmark, row["problem_id"]] = problem
                self.problems.append(texts)
            self.rows.append(text)
            self.size += size

    def _place(self, benchmark: str, row: Mapping[str, Any]) -> int:
        return self._places.get((benchmark, row["problem_id"]), len(self.problems))

    @property
    def count(self) -> str:
        """How many of those of the chosen checkpoints are there."""
        return f"{len(self.rows):,} of {plural(self.total, 'sample')}"


def collect(
    layout: Layout, db: Database, sweep: str, labels: Mapping[str, str], budget: int
) -> Samples:
    """Samples of a sweep up to `budget` bytes; each evaluation has an equal share of what is left.

    `labels` are those of the variants. Raises StoreError: a file cannot be read.
    """
    samples = Samples()
    found = list(_evaluations(layout, db, sweep, labels))
    for place, evaluation in enumerate(found):
        samples.add(evaluation, (budget - samples.size) // (len(found) - place))
    return samples


def _evaluations(
    layout: Layout, db: Database, sweep: str, labels: Mapping[str, str]
) -> Iterator[Evaluation]:
    """Of each variant the first seed, at the last step with an evaluation."""
    scores = queries.scores(db, sweep)
    scores = scores[scores["benchmark"].isin(queries.benchmarks(db, [sweep]))]
    for variant, rows in scores.groupby("variant"):
        of_seed = rows[rows["seed"] == rows["seed"].min()]
        last = of_seed[of_seed["step"] == of_seed["step"].max()]
        for row in last.itertuples():
            path = layout.run(sweep, row.run).eval_path(row.benchmark, int(row.step))
            if path.exists():  # an import has accuracies without samples
                label = labels.get(str(variant), str(variant))
                yield Evaluation(label, int(row.seed), int(row.step), row.benchmark, path)


def samples_page(title: str, samples: Samples, back: str) -> str:
    """The page that shows them; `back` is the file that leads to it."""
    data = {"problems": samples.problems, "samples": samples.rows}
    return rendered(
        "samples.html",
        packaged("samples.js"),
        title=title,
        back=back,
        count=samples.count,
        data=json_element(data),
    )


def _size(texts: Mapping[str, Any]) -> int:
    """Bytes in the page."""
    return len(json.dumps(texts, separators=(",", ":")))
