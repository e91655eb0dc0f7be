"""What a step took is known of runs that are older than some of the fields."""

from types import SimpleNamespace

from rpg.config.run_spec import RunSpec
from rpg.planning.cost import known_spreads, measured, seconds_per_step


def finished(spec, seconds):
    manifest = {"spec": spec, "steps": 10}
    return SimpleNamespace(read_done=lambda: {"seconds": seconds}, read_manifest=lambda: manifest)


def test_runs_that_are_older_than_a_field_tell_their_time():
    spec = RunSpec().model_dump(mode="json")
    older = spec | {"model": {name: value for name, value in spec["model"].items() if name != "lora"}}
    other = spec | {"rollout": spec["rollout"] | {"group_size": 4}}
    broken = {"spec": 1}
    runs = [finished(older, 20.0), finished(spec, 40.0), finished(other, 90.0), finished(broken, 1.0)]
    layout = SimpleNamespace(sweeps=lambda: ["demo"], run_folders=lambda sweep: runs)
    assert older != spec and seconds_per_step(measured(layout), RunSpec()) == (3.0, 2)


def test_spreads_are_those_of_the_last_look_that_has_any():
    looks = [{"benchmarks": ["b"], "spreads": spreads} for spreads in ([1, 2, 3], [0, 0, 0], None)]
    layout = SimpleNamespace(sweeps=lambda: ["s"], read_looks=lambda name: looks)
    assert known_spreads(layout, ("b",)) == (1, 2, 3) and known_spreads(layout, ("c",)) is None
