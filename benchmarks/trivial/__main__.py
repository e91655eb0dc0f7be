"""`python -m benchmarks.trivial ARGS`: the command `rpg` with trivial runs."""

from benchmarks.trivial import install
from rpg.cli import main

if __name__ == "__main__":
    install()
    main()
