"""The peer: RocketMQ's own store, measured on this machine beside its limits and a naive Python loop. See README.md."""
