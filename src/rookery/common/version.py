"""The version of rookery, for modules that must not import the root package."""

__version__ = "0.9.0"
