"""What `rpg doctor --backend verl --ray ADDRESS` finds of a cluster: one of one node, and none."""

import pytest

from rpg.backends.verl.readiness import of_cluster
from tests.evaluation.ray_head import free_port, ray_head
from tests.tiny import make_spec
from tests.waiting import until


def doctor(address):
    """For a run that needs a GPU."""
    return of_cluster(
        make_spec(backend={"type": "verl", "device": "cuda", "rollout": {"type": "vllm"}}).backend, address
    )


@pytest.mark.long
def test_the_doctor_looks_at_a_cluster_that_is_named(monkeypatch):
    """By its dashboard; it has the CPUs of this machine and no GPU."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with ray_head(dashboard=port):
        until(lambda: ": 1 nodes (" in doctor(address)[0].text, "the dashboard and its node")
        there, why = doctor(address)
    assert there.good and there.text.startswith(f"Ray cluster at {address}: 1 nodes (")
    assert why.good is False and "the Ray cluster has 0 nodes with 1 free GPUs" in why.text
    [gone] = doctor(address)
    assert gone.good is False and gone.text.startswith(f"no Ray cluster answers at {address}")
