"""verl on a machine without a GPU; rpg.backends.verl.cpu loads its parts, and only when
VERL_PLATFORM=cpu asks for them."""
