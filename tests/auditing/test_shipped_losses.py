"""The table of the losses that trainers ship: what is measured is what docs/field.md says, and a
changed peer shows."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from rpg.auditing import audit_field, peers, pinned
from rpg.auditing.shipped import FIGURES, WORDS, losses_markdown, row_of
from rpg.catalogue import override

PAGE = (Path(__file__).parents[2] / "docs/field.md").read_text()
HEADINGS = (*WORDS, *FIGURES, "origin")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def field():
    pytest.importorskip("verl", reason="verl is not installed")
    return audit_field()


def documented():
    table = PAGE[PAGE.index("| " + " | ".join(HEADINGS)) :].split("\n\n")[0]
    return {tuple(words[:2]): words for words in map(split, table.splitlines()[2:])}


def split(line):
    return [word.strip() for word in line.strip().strip("|").split("|")]


def same(left, right, within=0.11):
    """Equal words, and numbers that differ by at most one in the last place that is shown."""
    ours, theirs = (list(map(float, NUMBER.findall(text))) for text in (left, right))
    return NUMBER.sub("", left) == NUMBER.sub("", right) and ours == pytest.approx(
        theirs, abs=within
    )


def test_page_has_what_is_measured(field):
    measured = {
        tuple(words[:2]): words for words in map(split, losses_markdown(field[0]).splitlines()[2:])
    }
    left_out = {key for key in documented() if any(key[0] in words for words in field[2])}
    assert measured.keys() == documented().keys() - left_out
    for key, words in measured.items():
        within = (
            1.0 if key[1].startswith("kl_cov") else 0.11
        )  # of equal covariances, rounding chooses
        pairs = zip(documented()[key], words, strict=True)
        assert all(same(*pair, within) for pair in pairs), (documented()[key], words)
    assert len(documented()) >= 60
    assert len({trainer for trainer, _ in documented()}) >= 7
    assert {trainer for trainer, _ in left_out} <= {"trl"}


FOLLOWS = {
    # verl #2953, #7856: k3 as a loss is the forward KL of its samples, as a reward the difference
    # of both
    ("verl", "distillation k3"): "−0.3 FKL",
    ("verl", "distillation k3, use_policy_gradient"): "0.3 FKL − 0.3 RKL",
    ("trl", "cispo, its default epsilon_high"): "0.2 R",
    ("prime-rl", "ref_kl (distillation)"): "−0.3 RKL",
    ("nemo-rl", "clipped_pg (k3)"): "R − 0.3 RKL",
    ("nemo-rl", "reinforce_plus_plus, use_kl_in_reward"): "R + 0.3 FKL − 0.3 RKL",
}


def test_what_is_followed_on_policy(field):
    """Exactly: a projection that leaves over more than 1e-9 would say so."""
    found = {(row.trainer, row.loss): row.follows for row in field[0]}
    expected = {key: words for key, words in FOLLOWS.items() if key[0] != "trl" or not field[2]}
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("formula", "peer"),
    [
        (("slime", "gspo"), ("trl", "grpo, sequence ratio")),
        (("slime", "cispo"), ("verl", "cispo")),
        (("slime", "grpo, use_kl_loss, low_var_kl, use_unbiased_kl"), ("trl", "dapo, beta")),
        (
            ("slime", "reinforce_plus_plus, kl_coef"),
            ("verl", "reinforce_plus_plus + use_kl_in_reward"),
        ),
        (("openrlhf", "ppo, use_loss (k1)"), ("verl", "vanilla + kl_penalty k1")),
        (("openrlhf", "ppo, use_loss, k3"), ("verl", "vanilla + kl_penalty k3")),
        (("tinker-cookbook", "ppo"), ("trl", "dr_grpo")),
    ],
)
def test_formulas_agree_with_installed_code_of_the_same_mathematics(field, formula, peer):
    if peer[0] == "trl":
        pytest.importorskip("trl", reason="TRL is not installed")
    rows = {(row.trainer, row.loss): row for row in field[0]}
    ours = rows[formula]
    theirs = rows[peer]
    for figure in ("token", "response", "bare", "noise"):
        assert getattr(ours, figure) == pytest.approx(getattr(theirs, figure), abs=1e-6), figure
    assert ours.follows == theirs.follows


def test_mask_of_prime_rl_is_that_of_dppo():
    """prime-rl's default without its drift term is DPPO-Binary-TV, which verl ships; both with a
    threshold of 0.2."""
    prime = pinned.trainers()["prime-rl"]
    algo = override(prime.losses["default"], drift_penalty=0.0)
    dppo = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 1e9}
    dppo |= {"policy_loss.loss_mode": "dppo_tv"}
    ours = row_of(pinned.subject("default", "prime-rl", algo, 0.3), "prime-rl", "", "")
    subject = peers.verl_subject(
        "dppo", "verl 0", 0.3, {f"{peers.ACTOR}{key}": dppo[key] for key in dppo}
    )
    theirs = row_of(subject, "verl", "", "")
    assert ours.token == pytest.approx(theirs.token, abs=1e-6)
    assert ours.token > 0.1


def verl_k3(monkeypatch):
    from verl.trainer.ppo import core_algos

    straight = core_algos.kl_penalty_forward
    monkeypatch.setattr(
        core_algos, "kl_penalty_forward", lambda p, ref, kind: 1.1 * straight(p, ref, kind)
    )
    in_loss = {f"{peers.ACTOR}use_kl_loss": True, f"{peers.ACTOR}kl_loss_type": "k3"}
    return peers.verl_subject("vanilla + kl_penalty k3", "verl 0.9.1", 0.3, in_loss)


def trl_coefficient(monkeypatch):
    pytest.importorskip("trl", reason="TRL is not installed")
    from trl.trainer.grpo_trainer import GRPOTrainer

    straight = GRPOTrainer._compute_loss
    monkeypatch.setattr(
        GRPOTrainer,
        "_compute_loss",
        lambda self, model, inputs: straight(
            self, model, {**inputs, "advantages": -inputs["advantages"]}
        ),
    )
    return peers.trl_subject("dapo", "trl 1.16.0", 0.0, {"loss_type": "dapo"})


@pytest.mark.parametrize("plant", [verl_k3, trl_coefficient])
def test_a_changed_peer_turns_the_table_red(monkeypatch, plant):
    subject = plant(monkeypatch)
    trainer = subject.source.split()[0]
    row = row_of(subject, trainer, "", "called")
    expected = dict(zip(HEADINGS, documented()[trainer, subject.name], strict=True))
    off = "0" if row.token < 1e-7 else f"{row.token:.1%}"
    assert not same(expected["off"], off) or row.follows != expected["follows on-policy"]


def test_every_formula_names_its_source():
    for trainer in pinned.trainers().values():
        assert re.fullmatch(r"[\w-]+/[\w-]+", trainer.repository)
        assert re.fullmatch(r"[0-9a-f]{40}|v[\d.]+", trainer.commit)
        places = [algo.citation for algo in trainer.losses.values()]
        places += [correction.at for correction in trainer.corrections.values()]
        assert [at for at in places if not re.fullmatch(r"[\w/.]+\.py:\d+", at)] == [], trainer.name
        for name, correction in trainer.corrections.items():
            assert re.match(r"[\w/.-]+\.(?:py|yaml):\d+: ", correction.default), (
                trainer.name,
                name,
            )


def test_page_is_self_contained(field):
    from rpg.report.sweep_report import field_page

    page = field_page(json.dumps(field[0], default=asdict), [asdict(row) for row in field[1]])
    assert "ref_kl (distillation)" in page
    assert "is_correction_enable" in page
    assert "Infinity" not in page
    assert not re.search(r"<(?:script|link)[^>]+(?:src|href)=", page)
