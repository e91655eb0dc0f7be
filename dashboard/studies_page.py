"""Studies: the search as it goes on, what is registered, what the reported runs say, and accuracy
over compute."""

import streamlit as st

from dashboard.view import View, rerun_when_changed
from dashboard.widgets import (
    RUN_LINK,
    Nothing,
    address,
    choose,
    choose_axis,
    choose_part,
    show_section,
    show_table,
)
from rpg.next_steps import command
from rpg.study import study_report
from rpg.study.study_report import Material
from rpg.study.trials import studies, tuning_sweep

SEARCH = "Search"
COMPARISON = "Comparison"
COMPUTE = "Over compute"
ACCURACY = "accuracy"


def page(view: View) -> None:
    names = studies(view.layout)
    if not names:
        raise Nothing(f"No studies yet. Start with: {command('study', 'FILE', layout=view.layout)}")
    columns = st.columns(3)
    name = choose("Study", names, "study", column=columns[0])
    found = study_report.material(view.layout, name)
    rerun_when_changed(lambda: _state(study_report.material(view.layout, name)), _state(found))
    if found.question:
        st.text(found.question)
    plan = found.registered
    if plan and not plan.deviations:
        st.badge("registered", color="green")
    elif plan:
        st.badge("registered, then changed", color="orange")
    shown = choose_part([SEARCH, COMPARISON, COMPUTE], "part")
    if shown == SEARCH:
        _search(found, columns)
        show_section(study_report.fewer_trials(found))
    elif shown == COMPARISON:
        show_section(study_report.registered(found))
        for part in view.compute(study_report.comparison, view.layout, plan) if plan else ():
            show_section(part)
        show_section(view.compute(study_report.cost, found))
    elif plan:
        show_section(view.compute(study_report.compute, plan, choose_axis(columns[1])))
    else:
        show_section(study_report.registered(found))


def _search(found: Material, columns: list[st.delta_generator.DeltaGenerator]) -> None:
    """The search as a picture whose points lead to their runs, and every trial."""
    fields = list(study_report.numeric_fields(found))
    across = choose("Across", fields, "across", column=columns[1])
    others = [field for field in fields if field != across]
    down = choose("Up", [*others, ACCURACY], "up", column=columns[2])
    view = [field for field in (across, down) if field and field != ACCURACY]
    sweep = tuning_sweep(found.study)
    runs = found.trials["run_ids"]
    links = [address("run", sweep=sweep, run=each[0]) if len(each) else None for each in runs]
    linked = found._replace(trials=found.trials.assign(link=links))
    show_section(study_report.search(linked, [view]))
    with st.expander(f"{len(links)} trials"):
        trials = linked.trials.drop(columns=["run_ids", "pruned"]).rename(columns={"link": "run"})
        show_table(trials, 400, {"run": RUN_LINK})


def _state(found: Material) -> str:
    """What changes when a trial is proposed or ends, or the study is registered or departs from
    what it registered."""
    rows = found.trials[["variant", "trial", "state", "seeds"]]
    plan = found.registered
    return f"{rows.to_csv()} {plan and (plan.digest, plan.deviations)}"
