"""The commands, each a function that Typer reads, and their work on the tables of stores."""
