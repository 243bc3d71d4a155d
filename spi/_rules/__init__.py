"""The checks of the contract's arguments, each in one place, for all backends, including third parties'."""
