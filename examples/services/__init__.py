"""Four processes of a platform on one store: they deploy, run, stop and delete applications, and elect a leader."""
