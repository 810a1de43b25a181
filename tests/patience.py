"""How long tests wait, for machines that are many times slower and busy."""

from __future__ import annotations

# For what must come: a limit that ends a hang, not an expectation.
PATIENCE_S = 300.0

# For a deadline that an env which hangs is to miss, and that no other env must ever miss.
DEADLINE_S = 6.0
