"""Measurements. Every figure comes from one run, side by side with what it is compared with."""
