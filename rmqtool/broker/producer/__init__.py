"""A producer with its broker in one: what a client and a broker do to a message before it is stored."""
