"""What `rpg init` writes: a laboratory of one's own. The files are copied as they are."""
