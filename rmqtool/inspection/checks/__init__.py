"""What can be said against a store, part by part: each module yields findings about one of them."""
