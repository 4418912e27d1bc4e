"""Tests. Golden bytes come from stores of real brokers, or are laid by hand; never from the code under test."""
