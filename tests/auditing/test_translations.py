"""A translated loss has the gradient of the original where the policy has not moved and where it
has, or it is refused."""

import pytest

from rpg.auditing import pinned
from rpg.auditing.translations import checked, difference
from rpg.catalogue import algorithm

BETA = 0.3


def theirs(name, **changes):
    """The loss of an algorithm, as if another trainer had it."""
    algo = algorithm(name, **changes)
    return pinned.subject(name, "their trainer", algo, BETA)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("grpo", {"beta": 0.1}), ("gspo", {"beta": 0.0}), ("rloo", {"kl": "none"})],
)
def test_the_same_loss_is_said_to_be_checked(name, changes):
    sentence = checked("their trainer", theirs(name, **changes), algorithm(name, **changes))

    assert "checked: the gradient equals that of their trainer" in sentence
    assert "at drifts 0, 0.1, 0.4, clip included" in sentence


PLAIN = {
    "beta": 0.1,
    "clip": {"low": 0.2, "high": 0.2, "c": None},
    "loss_agg_mode": "seq-mean-token-mean",
}


def test_another_average_over_tokens_is_refused():
    proposed = algorithm("grpo", **(PLAIN | {"loss_agg_mode": "token-mean"}))

    with pytest.raises(ValueError, match="averages over tokens as token-mean, their trainer as"):
        checked("their trainer", theirs("grpo", **PLAIN), proposed)


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": {"low": 0.2, "high": 0.3, "c": None}},
        {"clip": {"low": 0.1, "high": 0.2, "c": None}},
        {"kl": {"type": "loss", "estimator": "k2"}},
    ],
    ids=["clip above", "clip below", "KL"],
)
def test_another_loss_is_refused(changes):
    proposed = algorithm("grpo", **(PLAIN | changes))

    assert difference(theirs("grpo", **PLAIN), proposed) > 1e-6
    with pytest.raises(ValueError, match=r"as proposed is .* off that of their trainer"):
        checked("their trainer", theirs("grpo", **PLAIN), proposed)
