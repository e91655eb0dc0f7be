"""`python -m flows.command ARGS`: the command `rpg` as a child of a flow: it ends when its parent does."""

from rpg.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    from rpg.cli import main

    main()
