"""What is wrong with a store: every part of it against every other, as findings. Never writes."""
