"""The commands, each a function that Typer reads, and what they do to tables in the stores."""
