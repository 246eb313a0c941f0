"""Replay what was taken away, and measure whether every claim holds."""
