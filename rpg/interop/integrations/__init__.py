"""Our losses and advantages inside other trainers (rpg.interop.integrations.trl,
rpg.interop.integrations.verl), and graded samples as logs of Inspect AI
(rpg.interop.integrations.inspect).
"""
