"""Baselines that do not fit the table of encoders and decoders."""
