"""Recovery: a store that was not closed, or is damaged, made whole again without losing a valid message."""
