"""Speed: ratios against a limit or a peer. ``make bench`` runs the tests; ``peer/`` measures the real Java store."""
