"""Real files of other trainers, held to the reading that is expected of each."""
