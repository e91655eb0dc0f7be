import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import rpg
from rpg.catalogue import DIVERGENCES, AlgorithmError, Clip

FOUR = ("fkl", "rkl", "ufkl", "urkl")
NAMES = [f"rpg-{style}{d}" for style in ("", "reinforce-") for d in DIVERGENCES] + (
    "grpo grpo-corrected dr-grpo dapo reinforce-pp reinforce-pp-baseline rloo ppo gpg gspo "
    "cispo gmpo sapo opo "
    "luspo vespo dppo-tv dppo-kl prime-rl ipo dro grpo-passk maxrl drpo "
    "r2vpo m2po frpo tpo reinforce "
    "opd vopd opd-rkl opd-fkl opd-jsd gkd minillm"
).split()


def test_every_algorithm_has_a_name_formula_and_source():
    assert list(rpg.algorithms()) == NAMES
    eight = {f"rpg-{style}{d}" for style in ("", "reinforce-") for d in FOUR}
    assert eight <= set(NAMES), "those of the paper"
    for preset in ("paper", "released"):
        for name, algo in rpg.algorithms(preset).items():
            assert algo.name == name
            assert algo.display_name
            assert algo.description.endswith(".")
            assert len(algo.description) < 110
            assert algo.citation
            assert algo.formula
            assert algo.objective
    assert rpg.algorithm("reinforce-pp").display_name == "REINFORCE++"


@pytest.mark.component
def test_import_is_light():
    code = "import sys, rpg; rpg.algorithms(); assert not {'torch', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.component
def test_what_needs_torch_says_so_where_it_is_missing():
    code = "import sys; sys.modules['torch'] = None; import rpg; rpg.policy_loss"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    *_, said = done.stderr.splitlines()
    assert "rpg needs torch here; install it with: " in said
    assert "losses" in said


def test_overrides_merge_into_nested_settings():
    changes = {
        "beta": 1e-3,
        "clip": {"high": 0.4},
        "kl": {"divergence": "rkl"},
        "reference": "fixed",
    }
    algo = rpg.algorithm("rpg-ufkl", **changes)
    assert (algo.clip.low, algo.clip.high, algo.clip.c) == (0.2, 0.4, 10.0)
    assert algo.kl.divergence == "rkl"
    assert algo.kl.style == "differentiable"
    assert algo.reference.type == "fixed"
    assert algo.beta == 1e-3
    assert rpg.algorithm("grpo", kl={"type": "reward", "estimator": "k2"}).kl.type == "reward"
    assert rpg.algorithm("reinforce", surrogate="ppo_clip", clip={"low": 0.1}).clip == Clip(low=0.1)
    assert rpg.algorithm("rpg-ufkl", clip=None).clip is None
    assert rpg.algorithm("grpo", clip=Clip(low=0.1, high=0.3, c=None)).clip == Clip(
        low=0.1, high=0.3, c=None
    )
    assert rpg.algorithm("grpo", kl="none").beta == 0
    assert rpg.algorithm("grpo").beta == 1e-3  # overrides never touch the catalogue


@pytest.mark.parametrize(
    "mistake", yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text("utf-8"))
)
def test_mistakes_are_answered_with_what_is_accepted(mistake):
    with pytest.raises(AlgorithmError) as error:
        rpg.algorithm(mistake["name"], **mistake["overrides"])
    assert error.value.field == mistake["field"]
    assert mistake["text"] in str(error.value)
    assert isinstance(error.value, ValueError)


def test_settings_are_the_mathematics_only():
    settings = rpg.algorithm("grpo").settings()
    assert "description" not in settings
    assert "display_name" not in settings
    assert settings["kl"] == {"type": "loss", "estimator": "k3", "weighted": False}
    assert (
        rpg.Algorithm(**{**rpg.algorithm("dapo").model_dump(), **settings}).settings() == settings
    )


def test_an_algorithm_says_whether_it_needs_a_reference():
    assert rpg.algorithm("grpo").needs_reference
    assert not rpg.algorithm("rpg-urkl").needs_reference
    assert rpg.algorithm("rpg-urkl", reference="fixed").needs_reference
    assert not rpg.algorithm("rpg-urkl", reference="fixed", beta=0.0).needs_reference
    assert not rpg.algorithm("dapo", reference="fixed").needs_reference


def test_released_presets_say_what_the_released_scripts_run():
    """paper.md section 9: the rf_clip_ppo scripts run the same dual-clip PPO, without KL, for all
    four names."""
    same = {str(rpg.algorithm(f"rpg-reinforce-{d}", "released").settings()) for d in FOUR}
    assert len(same) == 1
    assert rpg.algorithm("rpg-reinforce-ufkl", "released").kl.type == "none"
    released = rpg.algorithm("rpg-ufkl", "released")
    assert released.surrogate == "ppo_clip"
    assert released.kl.type == "objective"
    assert rpg.algorithm("grpo", "released").loss_agg_mode == "token-mean"
    assert rpg.algorithm("gspo", "released") == rpg.algorithm("gspo")


def test_the_list_shows_every_algorithm_and_one_with_its_settings(command_line):
    _, text, _ = command_line("list")
    assert all(name in text for name in NAMES)
    assert "arXiv 2503.14476" in text
    _, text, _ = command_line("list", "rpg-ufkl")
    assert "Table 8: RPG-UFKL" in text
    assert "low 0.2, high 0.28, c 10.0" in text
    code, _, errors = command_line("list", "rpg-ukl")
    assert code == 2
    assert "did you mean 'rpg-" in errors
