"""Plan, apply, undo; copy, merge, bridge."""
