"""What the stores share, and what depends on none of them: a rule or a mechanism in each module."""
