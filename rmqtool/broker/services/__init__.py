"""What a broker does by itself: delayed messages, timers, transactions, retries, pop."""
