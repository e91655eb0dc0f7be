"""The rules by which a response is graded, by name: samples, records and reports say which were used."""

from __future__ import annotations

from rpg.config.task import MarkerVerifier, MathVerifier, RewardVerifier, VerifierSection
from rpg.rewards import recipe

LINES = "lines-2"
"""Answer lines read by the grammar of rpg.rewards.statement. Raise the number when a verdict may change."""
RECIPE = f"math_dapo-{recipe.VERSION}"


def rules_name(verifier: VerifierSection) -> str:
    """Name and version of a verifier's rules, with settings that are not the default: `lines-2`, `math_dapo-0.9.1`."""
    if isinstance(verifier, MarkerVerifier):
        return f"marker-{verifier.match}"
    if isinstance(verifier, RewardVerifier):
        return f"reward>={verifier.at_least:g}"
    if not isinstance(verifier, MathVerifier):
        return verifier.type
    if verifier.rules == "recipe":
        return RECIPE
    boxed = "+boxed" if verifier.fallback == "boxed" else ""
    tolerance = f"+tolerance-{verifier.relative_tolerance:g}" if verifier.relative_tolerance else ""
    return LINES + boxed + tolerance


def with_rules(verifier: MathVerifier, rules: str) -> MathVerifier:
    """The same verifier under `default` or `recipe` rules."""
    return MathVerifier.model_validate({**verifier.model_dump(), "rules": rules})
