"""Wiring: builds a system from a configuration and runs it; the only package that knows both sides."""
