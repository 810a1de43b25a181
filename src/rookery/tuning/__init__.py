"""Searches: for the fastest way to run an env, and for settings that learn it well."""
