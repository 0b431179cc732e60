"""What a trained model can be asked: facts that are missing, or classes."""

from __future__ import annotations
