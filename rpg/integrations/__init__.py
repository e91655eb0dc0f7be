"""Our losses and advantages inside other trainers (rpg.integrations.trl, rpg.integrations.verl),
and graded samples as logs of Inspect AI (rpg.integrations.inspect).
"""
