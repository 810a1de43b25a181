"""The same networks evaluated with numpy, without torch."""
