"""Waiting for workers: events, semaphores and back-off."""
