"""verl's task runner, which is the driver of a job, with our trainer mode registered."""

from __future__ import annotations

from verl.trainer.main_ppo import TaskRunnerV1


class Runner(TaskRunnerV1.__ray_metadata__.modified_class):
    """Runs as a Ray actor; everything it starts hangs on it."""

    def run(self, config):
        import rpg.backends.verl.trainer  # noqa: F401 (registers the trainer mode "rpg")

        return super().run(config)
