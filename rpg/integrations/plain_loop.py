"""The public address of `rpg.interop.integrations.plain_loop`."""

from rpg.interop.integrations.plain_loop import steps

__all__ = ["steps"]
