"""A store as an ordered stream of batches and damage: bulk where it can, the tolerant walk where bulk declines."""
