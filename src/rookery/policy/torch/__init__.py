"""Networks and distributions, defined in torch."""
