"""The installed peers' own code under the audit: the facts their users found out the hard way."""

import pytest

from rpg.auditing.measure import measure
from rpg.auditing.objectives import Objective
from rpg.auditing.peers import installed

TOKEN, RESPONSE = (str(Objective(level, "none")) for level in ("token", "sequence"))
TOKEN_FKL, TOKEN_RKL = (str(Objective("token", divergence)) for divergence in ("fkl", "rkl"))


def results(module):
    pytest.importorskip(module, reason=f"{module} is not installed: its losses are left out of the audit")
    subjects, absent = installed(0.3)
    assert module not in absent, absent
    return {s.name: measure(s) for s in subjects if s.source.startswith(module)}


def test_verl():
    """verl #2953, #2983, #6058: what its kl_penalty kinds do as a loss."""
    found = results("verl")
    assert found["vanilla"].exact_off_policy == (TOKEN,)
    k3 = found["vanilla + kl_penalty k3"]
    assert k3.exact_on_policy == (TOKEN_FKL,) and k3.exact_off_policy == ()
    assert found["vanilla + kl_penalty k1"].exact_on_policy == (TOKEN, RESPONSE)  # no KL at all
    for kind in ("k2", "k1+", "k3+"):
        result = found[f"vanilla + kl_penalty {kind}"]
        assert result.exact_on_policy == (TOKEN_RKL,) and result.exact_off_policy == ()
    assert found["vanilla + kl_penalty abs"].exact_on_policy == ()
    assert found["gspo"].exact_on_policy == (TOKEN, RESPONSE) and found["gspo"].exact_off_policy == ()
    for name in ("clip_cov", "kl_cov"):
        assert found[name].batch == 2 and found[name].points, "measured with the coupling of its responses"


def test_trl():
    """TRL #4638, #4967 (the ratio on the KL) and #6503 (a response's ratio on a token's KL)."""
    found = results("trl")
    assert found["grpo, beta"].exact_on_policy == (TOKEN_FKL,)
    assert found["grpo, beta"].exact_off_policy == ()
    assert found["grpo, beta, corrected"].exact_off_policy == (TOKEN_RKL,)
    assert found["grpo, beta, corrected, seq."].exact_on_policy == ()
    assert found["grpo"].exact_off_policy == found["dapo"].exact_off_policy == (TOKEN,)
