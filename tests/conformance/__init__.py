"""Both directions against the real classes: what they read of a store, and what they make of one we wrote."""
