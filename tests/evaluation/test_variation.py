"""Presets, and what an accuracy depends on besides the model."""

import numpy as np
import pytest

from rpg.evaluation.variation import load_preset, spread_over_prompts
from rpg.tasks.benchmarks import benchmarks
from tests.docs.pages import ROOT

PRESETS = ("paper", "sober", "deepseek-r1", "qwen3", "quick")


def test_every_preset_names_its_source_and_covers_all_benchmarks():
    for name in PRESETS:
        preset = load_preset(name)
        assert len(preset.source) > 20
        assert all(preset.k(each) >= 1 for each in benchmarks())
    assert (load_preset("sober").k("aime25-prompt-2"), load_preset("sober").k("math500")) == (10, 3)


def simulated(prompt_effect, problem_effect, k, seed):
    """Graded samples of 3 prompts x 40 problems whose probabilities are .5 + effects, of their
    interaction, too."""
    random = np.random.default_rng(seed)
    prompts = random.normal(0, prompt_effect, 3)
    problems = random.normal(0, problem_effect, 40)
    chance = np.clip(0.5 + prompts[:, None] + problems + random.normal(0, 0.1, (3, 40)), 0, 1)
    right = random.random((3, 40, k)) < chance[..., None]
    return [
        [{"problem": str(p), "correct": bool(right[i, p, j])} for p in range(40) for j in range(k)]
        for i in range(3)
    ]


def test_the_standard_deviations_are_those_of_the_simulation():
    """On average over 200 evaluations, as variances."""
    found = [spread_over_prompts(simulated(0.05, 0.15, 8, seed)) for seed in range(200)]
    variances = {name: np.mean([each[name] ** 2 for each in found]) for name in found[0]}
    assert variances["prompt"] == pytest.approx(0.05**2 + 0.1**2 / 40, rel=0.3)
    assert variances["problem"] == pytest.approx((0.15**2 + 0.1**2) / 40, rel=0.1)
    assert variances["sampling"] == pytest.approx(
        (0.25 - 0.05**2 - 0.15**2 - 0.1**2) / (40 * 8), rel=0.1
    )


def test_the_documentation_has_their_settings():
    page = (ROOT / "docs/evaluation.md").read_text()
    for name in PRESETS:
        preset = load_preset(name)
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        samples, *settings = [cell.strip() for cell in row.split("|")[2:7]]
        numbers = [preset.temperature, preset.top_p, preset.top_k, preset.max_response_tokens]
        assert next(map(str, preset.samples_per_problem.values())) == samples.split()[0]
        assert settings == ["" if x is None else f"{x:,}" for x in numbers]
