"""The drawing of where objectives end."""

from rpg.report.optimum_chart import ends_chart


def end(loss, form="token RKL", answers=(0.6, 0.1), note=""):
    return {"loss": loss, "form": form, "nearest": "token FKL", "answers": answers, "note": note}


def bars(*rows):
    found = {}
    for value in ends_chart((0.2, 0.05), rows)["data"]["values"]:
        found.setdefault(value["policy"], []).append(round(value["probability"], 6))
    return found


def test_each_end_is_one_bar_that_fills_one_and_names_its_losses():
    assert bars(end("a"), end("b"), end("c", "token FKL", (0.4, 0.3))) == {
        "reference": [0.2, 0.05, 0.75],
        "token RKL: a, b": [0.6, 0.1, 0.3],
        "token FKL: c": [0.4, 0.3, 0.3],
    }


def test_a_loss_without_an_end_has_no_bar_and_one_at_no_closed_form_says_so():
    found = bars(end("a", note="no end"), end("b", form=""))
    assert list(found) == ["reference", "near token FKL: b"]


def test_many_losses_are_counted():
    found = bars(*[end(f"rpg-reinforce-{letter}") for letter in "abcdefg"])
    assert list(found)[1] == "token RKL: rpg-reinforce-a, rpg-reinforce-b and 5 more"
