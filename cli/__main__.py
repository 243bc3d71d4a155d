"""`python -m structable.cli`, for where scripts are not on the path."""

from . import main

main()
