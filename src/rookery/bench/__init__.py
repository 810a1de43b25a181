"""How fast an env steps, here and in other libraries, and what that says of this machine."""
