"""What all commands have in common for a person: their arguments and options, what they show, and their errors."""
