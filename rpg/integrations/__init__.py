"""Our losses and advantages inside other trainers: rpg.integrations.trl, rpg.integrations.verl."""
