"""Optical switches between servers: what the controller knows and decides of them."""
