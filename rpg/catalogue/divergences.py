"""The divergences that an objective can subtract from the expected reward, one record each in
divergences.yaml.

A record says what a divergence is called, how it reads and what it promises; its mathematics stand
under the same name in :mod:`rpg.losses.kl_terms`, which refuses to load when the two do not agree.
The entries `rpg-<name>` and `rpg-reinforce-<name>` of the catalogue, `kl` of type objective and the
audit all follow from here. A `kl` of type distribution has names of its own
(components.DistributionKL), and so have the assertions of :mod:`rpg.testing`. docs/extending.md
adds one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

RPG_PAPER = "Zhang et al., RPG, arXiv 2505.17508"


@dataclass(frozen=True)
class Divergence:
    """D of the objective E_π[R] − β D.

    Formulas are texts for people: w = π/old, v = ref/old, d = log(π/ref). `normalised` names the
    record whose D is the same where policies sum to one (itself, if no other's is): the objective
    that the audit holds the loss against. `unnormalised`: D counts the masses of measures too, so
    that Z of `old` means something. `prefix` and `advantage_slope` say which optional slopes
    rpg.losses.kl_terms declares: without the first `ratio: prefix` is refused, without the second
    every `clip.gradient` but `detached`.
    """

    name: str
    penalty: str  # what is subtracted from E[R]
    words: str
    term: str  # of the fully differentiable loss, with its sign, after −wR
    weight: str  # W of the REINFORCE style, whose loss is −sg(W) log π
    normalised: str
    unnormalised: bool = False
    prefix: bool = False
    advantage_slope: bool = False
    citation: str = RPG_PAPER
    paper_tables: Sequence[
        str
    ] = ()  # of the RPG paper with results of it; there is released code then


RESERVED = {
    "none": "no divergence at all",
    "jsd": "the Jensen-Shannon divergence of a kl of type distribution",
}
"""Names that stand for something else where the audit says which divergence a loss has."""


def read(name: str) -> Any:
    """The content of one of the catalogue's YAML files."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is about ten times as fast
    return yaml.load(files("rpg.catalogue").joinpath(name).read_bytes(), Loader=loader)


_RECORDS: dict[str, dict[str, Any]] = read("divergences.yaml")
DIVERGENCES = {name: Divergence(name, **record) for name, record in _RECORDS.items()}
