"""Starting worker processes: launch, fork servers, inherited state."""
