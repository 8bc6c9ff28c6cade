"""Families of tasks for the mock desktop: each draws tasks of a kind, from easy to hard."""
