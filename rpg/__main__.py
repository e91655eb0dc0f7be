"""`python -m rpg` is the command `rpg`."""

from rpg.cli import main

if __name__ == "__main__":
    main()
