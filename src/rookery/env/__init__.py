"""What one environment is, and how some of them are stepped together."""
