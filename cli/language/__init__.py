"""The interface that all commands share: their arguments and options, their output, and their errors."""
