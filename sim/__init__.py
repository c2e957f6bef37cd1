"""Network simulation: programs of GPU thread blocks on alpha-beta networks.

This package knows networks and programs and imports nothing of ``explorer``.
"""
