"""Datasets, and what happens to their images before the net."""
