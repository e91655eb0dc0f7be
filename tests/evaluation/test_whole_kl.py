"""The KL of whole distributions, against policies whose responses can all be enumerated."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import t

from rpg.config.model import TinyModel
from rpg.evaluation.whole_kl import response_kl, summary
from rpg.models import seeds
from rpg.models.decoding import Batch, SamplingPlan
from rpg.models.model_loading import build_tiny
from rpg.models.policy import Policy
from rpg.models.tokenizer import build_tokenizer
from rpg.models.truncated_sampling import Restriction, Sampling

TOKENIZER = build_tokenizer("ab")
VOCABULARY = range(len(TOKENIZER))
END = TOKENIZER.eos_token_id
LIMIT = 3
LETTERS = [TOKENIZER("a")["input_ids"][-1], TOKENIZER("b")["input_ids"][-1]]
PROMPTS = [
    [TOKENIZER.bos_token_id, *letters]
    for n in (1, 2, 3, 4)
    for letters in product(LETTERS, repeat=n)
]
RESPONSES = [
    response
    for n in range(1, LIMIT + 1)
    for response in product(VOCABULARY, repeat=n)
    if END not in response[:-1] and (n == LIMIT or response[-1] == END)
]


def tiny(sharpness, seed):
    """A policy over six tokens; with a high sharpness, one token takes nearly all probability."""
    model = build_tiny(TinyModel(hidden_size=16, heads=2, kv_heads=1, layers=1), TOKENIZER, seed)
    with torch.no_grad():
        model.model.norm.weight.mul_(sharpness)
    return Policy(model, TOKENIZER)


def enumerated(prompt):
    """All responses to a prompt as one batch."""
    lengths = torch.tensor([len(response) for response in RESPONSES])
    tokens = torch.tensor([[*response, *[0] * (LIMIT - len(response))] for response in RESPONSES])
    return Batch([prompt], torch.zeros(len(RESPONSES), dtype=torch.long), tokens, lengths)


@pytest.fixture(scope="module")
def cases():
    """Sharpness -> (probability of each response, KL along it, KL between responses), by prompt."""
    torch.set_num_threads(1)
    initial = tiny(3.0, 0)
    result = {}
    for sharpness in (3.0, 40.0):
        policy = tiny(sharpness, 1)
        rows = []
        for prompt in PROMPTS:
            batch = enumerated(prompt)
            with torch.no_grad():
                log_p, log_q = (
                    one.log_probs(batch, 1.0).double().sum(1) for one in (policy, initial)
                )
            p = log_p.exp().numpy()
            truth = float((p * (log_p - log_q).numpy()).sum())
            rows.append((p, response_kl(policy, initial, batch, Sampling()), truth))
        result[sharpness] = rows
    return result


@pytest.mark.parametrize("sharpness", [3.0, 40.0])
def test_its_mean_over_responses_is_the_kl_between_responses(cases, sharpness):
    for p, values, truth in cases[sharpness]:
        assert p.sum() == pytest.approx(1, abs=1e-5)
        assert float(p @ values[:, 0]) == pytest.approx(truth, rel=1e-4)
        assert values[:, 1].tolist() == [len(response) for response in RESPONSES]


def test_the_sharp_policy_hardly_ever_draws_what_sampled_tokens_would_need(cases):
    """So that the test of its coverage is one."""
    most = [p.max() for p, _, _ in cases[40.0]]
    assert np.median(most) > 0.9
    assert min(truth for _, _, truth in cases[40.0]) > 0.4


@pytest.mark.parametrize("sharpness", [3.0, 40.0])
def test_intervals_cover_the_enumerated_kl(cases, sharpness):
    """95 % intervals over 30 of the problems, with four samples each: in 92 to 98 % of 1,000
    repetitions."""
    rows = cases[sharpness]
    truth = np.mean([truth for _, _, truth in rows])
    rng = np.random.default_rng(0)
    quantile = t.ppf(0.975, 29)
    covered = 0
    for _ in range(1000):
        problems = []
        for problem in rng.integers(len(rows), size=30):
            p, values, _ = rows[problem]
            problems.append(values[rng.choice(len(p), size=4, p=p / p.sum())])
        estimate = summary(problems)
        error = quantile * estimate.per_response_se
        covered += abs(estimate.per_response - truth) <= error
    assert 920 <= covered <= 980


def test_a_policy_is_no_distance_from_itself():
    policy = tiny(5.0, 0)
    values = response_kl(policy, policy, enumerated(PROMPTS[0]), Sampling())
    assert values[:, 0].tolist() == [0.0] * len(RESPONSES)


@pytest.mark.parametrize(
    "restriction",
    [
        Restriction(top_k=2),
        Restriction(top_p=0.7),
        Restriction(min_tokens=2),
        Restriction(top_p=0.8, min_tokens=2),
    ],
)
def test_restricted_samples_are_of_restricted_distributions(restriction):
    """Against the log-probabilities that the sampler's own support gives, over many samples."""
    policy = tiny(3.0, 1)
    initial = tiny(3.0, 0)
    uniforms = seeds.uniforms(8000, LIMIT, 0, "restricted")
    plan = SamplingPlan(8000, LIMIT, uniforms, temperature=0.7, restriction=restriction)
    samples = policy.sample(PROMPTS[:1], plan)
    with torch.no_grad():
        others = initial.log_probs(samples.batch, 0.7)
    plain = (samples.log_prob - others).double().sum(1).numpy()
    sampling = Sampling(temperature=0.7, restriction=restriction)
    exact = response_kl(policy, initial, samples.batch, sampling)[:, 0]
    error = np.std(plain - exact) / np.sqrt(len(plain))
    assert abs(plain.mean() - exact.mean()) < 4 * error
    assert error < 0.1 * exact.mean()


def test_what_an_environment_says_is_context_only():
    policy = tiny(3.0, 1)
    initial = tiny(3.0, 0)
    tokens = torch.tensor([[4, 5, 4, END]])
    whole = Batch([PROMPTS[0]], torch.tensor([0]), tokens, torch.tensor([4]))
    heard = torch.tensor([[False, True, False, False]])
    partly = Batch([PROMPTS[0]], torch.tensor([0]), tokens, torch.tensor([4]), heard=heard)
    first = Batch([PROMPTS[0]], torch.tensor([0]), tokens[:, :1], torch.tensor([1]))
    two = Batch([PROMPTS[0]], torch.tensor([0]), tokens[:, :2], torch.tensor([2]))

    def kl(batch):
        return response_kl(policy, initial, batch, Sampling())[0]

    of_second_token = kl(two)[0] - kl(first)[0]
    assert kl(partly)[0] == pytest.approx(kl(whole)[0] - of_second_token, rel=1e-5)
    assert kl(partly)[1] == 3


def test_errors_are_over_problems_and_of_one_problem_over_its_samples():
    three = [np.array([[1.0, 2], [3.0, 2]]), np.array([[4.0, 4], [4.0, 4]]), np.array([[9.0, 3]])]
    estimate = summary(three)
    assert estimate.per_response == 5
    assert estimate.per_token == pytest.approx(5 / 3)
    assert estimate.per_response_se == pytest.approx(np.std([2, 4, 9], ddof=1) / np.sqrt(3))
    assert (estimate.responses, estimate.problems) == (5, 3)
    one = summary(three[:1])
    assert one.per_response_se == pytest.approx(1.0)
    assert one.per_response == 2
    assert summary(three[2:]).per_response_se is None
