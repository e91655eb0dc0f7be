"""Colours, bands and panels of charts; a KL to the reference is never drawn beside one to another
reference."""

import colorsys
import itertools
import math

import pandas
import pytest
import yaml

import rpg
from rpg.metrics import METRICS
from rpg.report import charts, curves, resolution, theme
from tests.places import ROOT


def distinct(looks):
    """The looks that differ in colour or dash."""
    return {(colour, tuple(dash)) for colour, dash in looks.values()}


def test_a_family_shares_its_colour_and_no_two_variants_look_the_same():
    families = ("GRPO", "RPG-URKL", "DAPO")
    labels = [f"{name}, clip {i}" for name in families for i in range(18)]
    looks = theme.line_styles(labels)
    assert len(distinct(looks)) == len(labels)

    # Lighter ones aside, all labels of a family have its colour.
    colour_of_family = {}
    for label, (colour, _) in looks.items():
        if colour in theme.COLOURS:
            colour_of_family[theme.family(label)] = colour
    assert colour_of_family == {name: theme.colour_of(name) for name in families}

    many = [f"algorithm {i}" for i in range(40)]
    assert len(distinct(theme.line_styles(many))) == 40


def test_the_family_of_a_label_is_its_algorithm():
    assert theme.family("night · RPG-UFKL, clip low 0.1, steps 3") == "RPG-UFKL"


def test_an_algorithm_has_its_colour_whatever_stands_beside_it():
    alone = {name: theme.line_styles([name, "another"])[name][0] for name in theme.PALETTE}
    for names in (list(theme.PALETTE), list(theme.PALETTE)[::-1]):
        together = theme.line_styles([f"{name}, beta 0.1" for name in names])
        shown = {theme.family(label): colour for label, (colour, _) in together.items()}
        assert shown == alone
        assert len({(colour, tuple(dash)) for colour, dash in together.values()}) == len(names)


def test_the_variants_of_the_quickstart_have_a_colour_each():
    algorithms = yaml.safe_load((ROOT / "configs/sweeps/quickstart.yaml").read_text())["axes"][
        "algorithm"
    ]
    ids = [entry if isinstance(entry, str) else entry["name"] for entry in algorithms]
    names = [rpg.algorithm(name).display_name for name in ids]
    assert [theme.colour_of(name.lower()) for name in names] == [*map(theme.colour_of, names)]
    assert len({theme.colour_of(name) for name in names}) == len(names) == 7


def test_two_seeds_get_a_range_and_three_an_interval():
    third_failed = {
        "seeds": [3, 2],
        "low": [0.9, -9.0],
        "high": [1.1, 9.0],
        "x": [1, 2],
        "step": [1, 2],
    }
    data = pandas.DataFrame(
        {"label": "a", "mean": 1.0, "lowest": 0.8, "highest": 1.2, **third_failed}
    )
    shown = curves.panel(data, ["a"], name="reward").data[["bottom", "top"]]
    assert shown.to_numpy().tolist() == [[0.9, 1.1], [0.8, 1.2]]
    for seeds, scores, first in (
        (1, (), "mean"),
        (2, (), "lowest"),
        (3, (), "low"),
        (2, ("reward",), "low"),
    ):
        [drawn] = curves.panels(data.assign(name="reward", seeds=seeds), ["a"], ["reward"], scores)
        assert drawn.layer[0].encoding.y.shorthand == f"{first}:Q"
    [explained] = curves.explanation(data.assign(name="reward"), ["reward"])
    assert "or the range between two seeds where only two are left" in explained


def points_of(name, labels, seeds, low=0.9):
    numbers = {"mean": 1.0, "low": low, "high": 1.1, "lowest": 0.9, "highest": 1.1}
    rows = [{"label": label, "name": name, "seeds": seeds, **numbers} for label in labels]
    return pandas.DataFrame(rows)


@pytest.mark.parametrize(
    ("labels", "seeds", "names", "each", "said"),
    [
        ("ab", 3, ["reward"], False, "Bands: training: 95 % interval over seeds."),
        ("abcde", 3, ["reward"], False, ""),
        ("abcde", 3, ["mean", "reward"], False, "Bands: accuracy: 95 % interval over seeds and "),
        ("ab", 2, ["reward"], False, "Bands: training: the range between the two seeds."),
        ("ab", 2, ["reward"], True, ""),
        ("ab", 1, ["reward"], False, ""),
        ("ab", 1, ["mean"], False, "Bands: accuracy: 95 % interval over problems."),
    ],
)
def test_bands_are_explained_as_far_as_they_are_drawn(labels, seeds, names, each, said):
    data = pandas.concat([points_of(name, labels, seeds) for name in ("mean", "reward")])
    [explained] = curves.explanation(data, names, ["mean"], each)
    assert said in explained
    assert ("Bands:" in explained) == bool(said)


def test_seeds_that_are_drawn_apart_are_not_called_a_mean():
    data = pandas.concat([points_of(name, "ab", 2) for name in ("mean", "reward")])
    [training] = curves.explanation(data, ["reward"], ["mean"], each=True)
    assert training == "Lines: both seeds, no mean."
    [both] = curves.explanation(data, ["mean", "reward"], ["mean"], each=True)
    assert both.startswith("Lines: mean over 2 seeds; training: both seeds, no mean. Bands: ")


@pytest.mark.parametrize(("low", "said"), [(0.9, False), (-0.1, True)])
def test_a_logarithmic_axis_is_named_where_an_interval_reaches_zero(low, said):
    data = points_of("grad_norm", "ab", 3, low)
    [explained] = curves.explanation(data, ["grad_norm"])
    assert ("on a logarithmic axis" in explained) == said


@pytest.mark.parametrize("shades", [{}, theme.ON_DARK], ids=["light", "dark"])
def test_no_two_colours_of_lines_look_alike(shades):
    """In steps of 255 per channel; the blue that dark pages had was 19 from the light blue."""
    shown = [shades.get(colour, colour) for colour in theme.COLOURS]
    points = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in shown]
    pairs = itertools.combinations(zip(shown, points, strict=True), 2)
    apart = {(a, b): math.dist(p, q) for (a, p), (b, q) in pairs}
    assert min(apart.values()) > 60, min(apart, key=apart.get)


def test_a_variant_keeps_its_colour_on_dark_pages_but_for_black():
    for light, dark in theme.ON_DARK.items():
        if light in theme.COLOURS and light != theme.COLOURS[0]:
            parts = [
                [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in (light, dark)
            ]
            hues = [colorsys.rgb_to_hls(*part)[0] for part in parts]
            assert abs(hues[0] - hues[1]) < 0.03


def test_panels_that_never_change_are_one_line():
    made = (
        ("ratio_mean", 1.0, 0.0),
        ("entropy", 1.0, 0.2),
        ("reward", 0.0, 0.0),
        ("reward", 1.0, 0.0),
    )
    rows = [
        {"name": name, "mean": x, "lowest": x, "highest": x + spread} for name, x, spread in made
    ]
    drawn, [line] = curves.folded(pandas.DataFrame(rows), ["ratio_mean", "entropy", "reward"], ())
    assert drawn == ["entropy", "reward"] and line.endswith("not drawn: Mean importance ratio: 1.")


def test_numbers_at_a_frontier_leave_each_other_room_and_the_ends_of_paths_come_first():
    paths = (("a", 0, 0.0), ("a", 9, 0.9), ("b", 0, 0.01), ("b", 9, 1.0), ("b", 8, 0.98))
    numbers = ("x", "accuracy", "lowest", "highest", "seeds")
    rows = [
        {"label": label, "place": place} | dict.fromkeys(numbers, x) for label, place, x in paths
    ]
    chart = charts.frontier(pandas.DataFrame(rows), ["a", "b"], name="training step", x="KL")
    assert chart.layer[3].data["x"].tolist() == [0.0, 0.9, 1.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.5], [0.1, 0.5]),
        ([0.5, 0.5, 0.1], [0.5, 0.6, 0.1]),
        ([0.98, 0.97], [1.0, 0.9]),
        ([], []),
    ],
)
def test_names_at_the_ends_of_paths_do_not_stand_over_each_other(values, expected):
    assert charts.spread_out(values, least=0.1, highest=1.0) == pytest.approx(expected)


def test_each_path_of_a_frontier_is_named_once_where_it_ends():
    points = (("a", 0, 0.1), ("a", 9, 0.7), ("b", 0, 0.1), ("b", 9, 0.69))
    numbers = ("x", "accuracy", "lowest", "highest", "seeds")
    rows = [
        {"label": label, "place": place} | dict.fromkeys(numbers, x) for label, place, x in points
    ]
    chart = charts.frontier(pandas.DataFrame(rows), ["a", "b"], name="training step", x="KL")
    names = chart.layer[-1].data
    assert names["label"].tolist() == ["a", "b"]
    assert names["accuracy"].tolist() == [0.7, 0.69]
    assert names["beside"].diff().abs().iloc[1] > 0.025


def test_tokens_whose_numbers_are_not_finite_are_in_no_bin():
    chart = charts.histogram(
        {"a": [1.0, 2.0, math.inf, math.nan], "b": [math.nan]}, ["a", "b"], "ratio"
    )
    assert chart.data.groupby("label")["share"].sum().to_dict() == {"a": 0.5, "b": 0.0}


DATA = pandas.DataFrame(
    [
        {"name": name, "sweep": "s", "variant": variant, "step": step, "mean": 0.1 * step}
        for name in ("kl_policy_to_ref", "kl_policy_to_old")
        for variant in ("grpo", "rpg-urkl")
        for step in (1, 2)
    ]
)


def test_each_reference_has_one_panel_of_its_own_that_names_it():
    references = {("s", "grpo"): "the initial model", ("s", "rpg-urkl"): "the old policy"}
    found = curves.by_reference(DATA, references)
    panels = curves.panels_of(found, ["kl_policy_to_old", "kl_policy_to_ref"])
    assert [curves.title(panel) for panel in panels] == [
        "KL(policy || old) (nats per token, k3)",
        "KL(policy || reference) (nats per token) · reference: the initial model, k3",
        "KL(policy || reference) (nats per token) · reference: the old policy, k3",
    ]
    assert [set(found[found["name"] == panel]["variant"]) for panel in panels] == [
        {"grpo", "rpg-urkl"},
        {"grpo"},
        {"rpg-urkl"},
    ]
    assert curves.metric_of(panels[1]).scale == "decades"
    same = dict.fromkeys(references, "the initial model")
    assert len(curves.panels_of(curves.by_reference(DATA, same), ["kl_policy_to_ref"])) == 1
    other = DATA.assign(name="reward")  # not about the reference
    assert curves.by_reference(other, {}).equals(other)


def test_the_heading_of_a_kl_names_its_estimator():
    headings = [metric.heading for metric in METRICS.values() if metric.title.startswith("KL")]
    unnamed = [heading for heading in headings if "k3" not in heading]
    assert unnamed == [
        "KL(reference || policy) (nats per token)",
        "KL(policy || reference) (nats per token)",
    ]
    whole = curves.title("kl_policy_to_ref @ the teacher, whole distributions")
    assert whole.endswith("reference: the teacher, whole distributions")
    imported = curves.title("kl_policy_to_ref @ unknown")
    assert imported.endswith("reference: unknown")


def _kl_curve(label, values, noise):
    columns = dict.fromkeys(("mean", "low", "high", "lowest", "highest"), values)
    steps = range(1, len(values) + 1)
    return pandas.DataFrame(
        {"label": label, "x": steps, "step": steps, "seeds": 1, **columns, "noise": noise}
    )


def test_a_kl_below_rounding_is_no_number_in_its_panel():
    small = _kl_curve("small", [2e-4, 3e-4], [7e-4, 7e-4])
    grown = _kl_curve("grown", [2e-4, 9e-2], [7e-4, 7e-4])
    data = pandas.concat([small, grown], ignore_index=True)
    panel = curves.panel(data, ["small", "grown"], name="kl_old_to_policy")
    assert panel.title.subtitle == "below rounding: small"
    assert panel.data["shown"].tolist() == ["below rounding"] * 3 + ["0.09"]
    told = "small below rounding at 1, below rounding at 2; grown below rounding at 1, 0.09 at 2"
    assert panel.description.endswith(told)


def test_a_kl_whose_rounding_was_not_measured_is_a_number():
    data = _kl_curve("float32", [2e-4, 3e-4], [math.nan, math.nan])
    panel = curves.panel(data, ["float32"], name="kl_old_to_policy")
    assert "shown" not in panel.data
    assert panel.description.endswith("float32 0.0002 at 1, 0.0003 at 2")


def test_a_constant_kl_below_rounding_is_no_number():
    data = _kl_curve("a", [2e-4, 2e-4], [7e-4, 7e-4]).assign(name="kl_old_to_policy")
    other = _kl_curve("a", [0.1, 0.4], [math.nan, math.nan]).assign(name="reward")
    both = pandas.concat([data, other], ignore_index=True)
    _, lines = curves.folded(both, ["kl_old_to_policy", "reward"], [])
    assert "nats per token, k3): below rounding." in " ".join(lines)


def test_each_curve_gets_the_rounding_of_its_own_step():
    def frame(metric, values):
        steps = [1.0, 2.0]
        return pandas.DataFrame(
            {"metric": metric, "sweep": "s", "variant": "v", "step": steps, "mean": values}
        )

    training = pandas.concat([frame("kl_old_to_policy", [1.0, 2.0]), frame("reward", [3.0, 4.0])])
    assert resolution.noises(["reward", "kl_old_to_policy"]) == ["kl_rounding"]
    curve = resolution.with_noise(training, frame("kl_rounding", [0.1, 0.2]))
    assert curve["mean"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert curve["noise"].tolist()[:2] == [0.1, 0.2]
    assert curve["noise"].isna().tolist() == [False, False, True, True]


def test_on_a_dark_page_a_variant_may_be_called_like_a_colour():
    spec = {
        "mark": {"fill": "white"},
        "encoding": {"color": {"scale": {"domain": ["white"], "range": ["#000000"]}}},
        "datasets": {"rows": [{"label": "white"}]},
    }

    dark = theme.on_dark(spec)

    assert dark["mark"] == {"fill": "transparent"}
    assert dark["encoding"]["color"]["scale"] == {"domain": ["white"], "range": ["#F2F2F2"]}
    assert dark["datasets"] == spec["datasets"]
