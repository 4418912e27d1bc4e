"""What a store contains, for people who look: overview, query, history, statistics, dump, diff. Never writes."""
