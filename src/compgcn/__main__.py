"""`python -m compgcn` is the command `compgcn`."""

from compgcn.cli import main

main()
