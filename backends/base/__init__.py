"""Rules and mechanisms that the stores share, one in each module; none depends on a store."""
