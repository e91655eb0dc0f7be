"""verl's `custom_reward_function` of verl_run.sh: 1 where what follows the last # is the answer."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    return float(solution_str.rpartition("#")[2].strip() == ground_truth)
