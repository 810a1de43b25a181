"""Many environments behind one interface."""
