"""The meaning of requests: each function takes a broker and a request, and returns the answer. Upstream: processors."""
