"""KL between a checkpoint and the model its run began with: in the files and in the database."""

import math
import shutil
from contextlib import closing, suppress

import numpy as np
import pytest
import torch

from rpg.config.load import spec_of
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.engines.local import LocalEngine
from rpg.evaluation.evaluator import Evaluator
from rpg.models.initial_policy import warm_folder
from rpg.models.model_loading import load_pretrained
from rpg.store.atomic_files import read_json_object
from rpg.store.database import build, connect
from rpg.store.layout import Layout
from rpg.store.run_folder import pending_evaluations
from rpg.store.samples import drift_path
from tests.evaluation.runs import register, rows
from tests.evaluation.small_model import SPEC


def started(home, checkpoints):
    """A data folder with the initial model."""
    model = warm_folder(SPEC, home)
    model.parent.mkdir(parents=True)
    model.symlink_to(checkpoints[0])
    return Layout.at(home)


def drift(folder, step):
    return read_json_object(drift_path(folder.eval_path("chain-easy", step)))


def by_hand(first, second, graded):
    """The sum over the vocabulary at every prefix, one response at a time, with transformers' own
    forward pass."""
    p, tokenizer = load_pretrained(first)
    q, _ = load_pretrained(second)
    values = []
    for row in graded:
        asked = tokenizer("<bos>" + row["problem"])["input_ids"]
        said = tokenizer(row["response"])["input_ids"]
        if not row["truncated"]:
            said = [*said, tokenizer.eos_token_id]
        assert len(said) == row["tokens"]
        places = slice(len(asked) - 1, len(asked) + len(said) - 1)
        with torch.no_grad():
            log_p, log_q = (
                model(torch.tensor([asked + said])).logits[0, places].double().log_softmax(-1)
                for model in (p, q)
            )
        values.append(float((log_p.exp() * (log_p - log_q)).sum()))
    return np.array(values)


def test_each_evaluation_measures_it_and_the_database_has_it(tmp_path, checkpoints):
    layout = started(tmp_path, checkpoints)
    folder = register(layout, "one", checkpoints, "local")
    copy = register(layout, "two", checkpoints, "local")
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 4
    start = drift(folder, 0)
    later = drift(folder, 1)
    for direction in ("policy_to_initial", "initial_to_policy"):
        assert start[direction]["per_response"] == 0.0
        assert later[direction]["per_response"] > 0.01
    assert drift(copy, 1) == later
    build(layout)
    with closing(connect(layout)) as db:
        rows = db.execute(
            "SELECT step, direction, per_response, per_token_se FROM drift ORDER BY ALL"
        ).fetchall()
    assert len(rows) == 8
    assert all(math.isfinite(value) for row in rows for value in row[2:])


def test_it_is_the_sum_over_the_vocabulary_at_each_prefix_of_the_stored_responses(
    tmp_path, checkpoints
):
    layout = started(tmp_path, checkpoints)
    folder = register(layout, "one", checkpoints, "local")
    Evaluator(layout, "sweep", lambda line: None).pass_over()
    values = by_hand(checkpoints[1], checkpoints[0], rows(folder, 1))
    stored = drift(folder, 1)["policy_to_initial"]
    assert stored["per_response"] == pytest.approx(values.mean(), abs=1e-3)
    of_problems = values.reshape(-1, 2).mean(1)
    error = of_problems.std(ddof=1) / math.sqrt(len(of_problems))
    assert stored["per_response_se"] == pytest.approx(error, abs=1e-4)


def test_it_is_equal_to_the_bit_whatever_else_is_in_the_folder_and_whenever_it_ends(
    tmp_path, checkpoints, monkeypatch
):
    """Other sweeps with fewer samples before or after, ends in the middle of each draw: the numbers
    of a sweep are those that it has alone, and no sample is drawn twice."""
    decode = LocalEngine._decode
    end = iter(())
    drawn = []

    def counted(self, asked):
        if next(end, False):
            raise KeyboardInterrupt
        drawn.extend(asked)
        return decode(self, asked)

    def evaluated(home, *order):
        layout = started(tmp_path / home, checkpoints)
        before = len(drawn)
        for k in order:
            how = {"engine": {"type": "local", "rows": 64}, "samples_per_problem": k}
            folder = register(layout, f"of-{k}", checkpoints, **how)
            while pending_evaluations(folder):
                with suppress(KeyboardInterrupt):
                    Evaluator(layout, "sweep", lambda line: None).pass_over()
        found = [
            [drift(layout.run("sweep", f"of-{k}"), step) for step in (0, 1)] for k in sorted(order)
        ]
        return found, (len(drawn) - before) / 64

    monkeypatch.setattr(LocalEngine, "_decode", counted)
    ([two], _), ([three], _) = evaluated("two", 2), evaluated("three", 3)
    assert evaluated("rising", 2, 3) == ([two, three], 2 * 3)
    assert evaluated("falling", 3, 2) == ([two, three], 2 * 3)
    end = iter([0, 1, 0, 0, 0, 1])  # at both steps
    assert evaluated("ended", 3) == ([three], 2 * 3)
    assert next(end, None) is None


def test_responses_that_an_older_version_stored_without_tokens_get_them(
    tmp_path, checkpoints, monkeypatch
):
    layout = started(tmp_path, checkpoints)
    folder = register(layout, "one", checkpoints, "local")
    Evaluator(layout, "sweep", lambda line: None).pass_over()
    expected = drift(folder, 1)
    drawing = Drawing.of(spec_of(folder))

    def draws(step):
        return drawing.draws(tmp_path, folder.checkpoint(step))

    responses = [
        {key: draw._replace(ids=None) for key, draw in draws(step).read().items()}
        for step in (0, 1)
    ]

    def begin_again(step, of_step):
        shutil.rmtree(folder.path / "evals")
        shutil.rmtree(layout.samples)
        draws(step).add(of_step)

    begin_again(1, responses[1])
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 2
    assert drift(folder, 1) == expected

    # They come out differently on another machine: nothing is said.
    begin_again(
        1,
        {key: draw._replace(response=draw.response + "?") for key, draw in responses[1].items()},
    )
    said = []
    assert Evaluator(layout, "sweep", said.append).pass_over() == 2
    assert any("KL to the initial model is not measured" in line for line in said)
    assert not drift_path(folder.eval_path("chain-easy", 1)).exists()


def test_without_the_initial_model_an_evaluation_is_whole_but_for_this(tmp_path, checkpoints):
    layout = Layout.at(tmp_path)
    folder = register(layout, "one", checkpoints[:1], "local")
    assert Evaluator(layout, "sweep", lambda line: None).pass_over() == 1
    assert not drift_path(folder.eval_path("chain-easy", 0)).exists()
