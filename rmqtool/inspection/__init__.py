"""Stores that may be broken: regions, checks, statistics, history. Never writes."""
