"""What all stores share, below all of them: slots of pools, work that no signal cuts in two. It knows no store."""
