"""The public address of `rpg.interop.integrations.verl`: importing it registers our losses with
verl."""

from rpg.interop.integrations.verl import LOSSES, Tracker, advantage, policy_loss, registered

__all__ = ["LOSSES", "Tracker", "advantage", "policy_loss", "registered"]
