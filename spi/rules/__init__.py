"""The rules of what the contract's arguments may be, each once, for all backends, third parties' included."""
