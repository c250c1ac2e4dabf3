"""`python -m neve` is the `neve` command."""

from neve.cli import main

main()
