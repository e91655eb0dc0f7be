"""What a chart says to those who cannot see it."""

import pandas

from rpg.report import alternative_text, curves


def test_every_line_is_told_by_its_ends():
    data = pandas.DataFrame(
        {"label": ["GRPO", "GRPO", "DAPO"], "x": [15, 0, 5], "mean": [0.66, 0.5312, 0.7]}
    )
    told = alternative_text.lines("Accuracy", data, across="training step")
    assert told == "Accuracy over training step: GRPO 0.5312 at 0, 0.66 at 15; DAPO 0.7 at 5"


def test_what_is_too_much_to_hear_is_counted():
    told = alternative_text.sentence("Accuracy", [f"v{i} .5" for i in range(40)])
    assert told.endswith("v11 .5; and 28 more") and told.count(";") == alternative_text.MOST


def test_a_panel_carries_its_text_into_its_specification():
    columns = {name: [0.25, 0.5] for name in ("mean", "low", "high", "lowest", "highest")}
    data = pandas.DataFrame({"label": "GRPO", "x": [0, 5], "step": [0, 5], "seeds": 1, **columns})
    spec = curves.panel(data, ["GRPO"], name="mean", points=True).to_dict(validate=False)
    assert spec["description"] == "Mean accuracy over training step: GRPO 0.250 at 0, 0.500 at 5"
