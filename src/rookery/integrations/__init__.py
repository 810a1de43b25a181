"""Adapters to other libraries.

Users import these modules by name; no other package imports them. Each library has one file, such
as `rookery.integrations.sb3`.
"""
