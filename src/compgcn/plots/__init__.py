"""Figures as files: PNG, PDF or SVG, drawn with matplotlib, which the extra `plot` brings."""
