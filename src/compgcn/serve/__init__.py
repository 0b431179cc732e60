"""Trained models over HTTP: a FastAPI application that answers from run folders, and the page that explores them."""

from __future__ import annotations
