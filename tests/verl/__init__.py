import psutil

from rpg.backends.verl.driver_process import MARK

NOT_ON_VERL = {
    "entropy_correct",
    "entropy_wrong",
    "ratio_p01",
    "ratio_p50",
    "ratio_p99",
    "kl_gradient_share",
    "kl_old_to_new",
    "kl_old_to_new_error",
}
"""Metrics that only the embedded trainer measures."""


def marked(folder, read=psutil.Process.name):
    """`read` of every living process that carries the run's mark."""
    values = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(MARK) == str(folder.path)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                values.append(read(process))
        except psutil.Error:
            continue
    return values
