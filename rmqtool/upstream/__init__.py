"""What a 4.9, 5.3 or 5.4 broker does to a store at start-up: a model of its steps, run over a copy-on-write overlay."""
