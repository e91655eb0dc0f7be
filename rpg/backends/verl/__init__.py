"""The verl back end: our losses, advantages, rewards and reference policies inside verl's own
trainer (docs/verl.md).

Importing this package imports neither verl nor torch; verl loads `rpg.backends.verl.plugin` where
it is told to.
"""
