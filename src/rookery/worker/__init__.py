"""How a child process that runs envs is started, lives, talks and ends."""
