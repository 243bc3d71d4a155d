"""`python -m structable.cli`, for environments whose path lacks scripts."""

from . import main

main()
