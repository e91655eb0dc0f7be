"""The public address of `rpg.interop.integrations`: our losses inside other trainers."""
