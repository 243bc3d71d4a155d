"""Page views and profiles: a pipeline of three tables, killed and restarted."""
