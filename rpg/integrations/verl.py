"""One import registers our losses and advantages with verl, for its own trainers: `import rpg.integrations.verl`.

    VERL_USE_EXTERNAL_MODULES=rpg.integrations.verl python -m verl.trainer.main_ppo ... \
        actor_rollout_ref.actor.policy_loss.loss_mode=rpg/rpg-reinforce-urkl algorithm.adv_estimator=rpg/rpg-reinforce-urkl

Nothing of our launcher is involved; which algorithms there are, and what such a loss cannot see, says
rpg/backends/verl/registry.py.
"""

from rpg.backends.verl import registry as registry

LOSSES = tuple(registry.registered())
"""Names for `loss_mode` and `adv_estimator`."""
