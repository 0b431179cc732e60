"""Runs: resolve settings, build a task, train it by a protocol, open it again and ask it."""
