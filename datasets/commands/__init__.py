"""Sub-commands of `structable`, found through the entry points of group `structable.commands`."""
