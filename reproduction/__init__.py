"""Reproduction of the paper."""
