"""The comparisons: each module registers its own with ``comparison``; all modules here are found by themselves."""
