"""What the initial model answers to a few problems, before anything is trained on them."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from rpg.config.code import kept_sources
from rpg.config.model import PretrainedModel
from rpg.config.run_spec import RunSpec
from rpg.evaluation.drawing import Drawing
from rpg.evaluation.graded_samples import evaluate_problems
from rpg.models.initial_policy import prepare_model
from rpg.models.model_cache import pretrained_folder
from rpg.models.reward_models import scorer_of
from rpg.tasks.preparation import prepare_data, read_problems

PROBLEMS = 8


def first_samples(spec: RunSpec, home: Path, say: Callable[[str], None]) -> list[str]:
    """Sentences about the responses to eight training problems, a group each, drawn as in training.

    Raises UserError: the data, the model or the rewards cannot be used.
    """
    problems = read_problems(prepare_data(spec, home).train)[:PROBLEMS]
    model: str | Path | None = prepare_model(spec, home, say)
    if isinstance(spec.model, PretrainedModel) and model is None:
        model = pretrained_folder(spec.model.path, home, say)
    assert model is not None
    group = spec.rollout.group_size
    limit = spec.rollout.max_response_tokens
    say(
        f"sampling {group} responses to each of {len(problems)} problems, at most {limit} "
        "tokens each"
    )
    evaluation = spec.evaluation.model_copy(update={"temperature": spec.rollout.temperature})
    drawing = Drawing.of(spec.model_copy(update={"evaluation": evaluation}))
    with (
        drawing.when_needed(model, None, say) as engine,
        scorer_of(spec, kept_sources(spec)) as scorer,
    ):
        draws = drawing.draws(home, model)
        rows = evaluate_problems(
            engine, problems, samples_per_problem=group, seed=spec.seed, scorer=scorer, draws=draws
        )
    rewards: dict[str, set[float]] = defaultdict(set)
    for row in rows:
        rewards[row["problem_id"]].add(row.get("reward", float(row["correct"])))
    flat = sum(len(values) == 1 for values in rewards.values())
    counted = ("extracted", "correct", "truncated")
    answers, right, cut = (sum(bool(row[key]) for row in rows) for key in counted)
    few = rows[:: len(rows) // 3][:3]
    shown = [f"  {row['problem'][-60:]!r} -> {row['response'][-80:]!r}" for row in few]
    return [
        *shown,
        f"before any training: {answers} of {len(rows)} responses end with an answer, "
        f"{right} with the right one; "
        f"{cut} are cut at {limit} tokens",
        f"the reward has no spread in {flat} of {len(rewards)} groups"
        + (", which teach nothing" if flat else ""),
    ]
