"""The public address of `rpg.interop.integrations.trl`."""

from rpg.interop.integrations.trl import RecordCallback, RPGTrainer

__all__ = ["RPGTrainer", "RecordCallback"]
