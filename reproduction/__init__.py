"""Reproduction of the paper: its tables, figures and claims, and the speed of this implementation.

`python -m reproduction` runs it from a checkout; the package that users install does not contain it.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
BENCHMARKS = Path(__file__).parent / "benchmarks"
