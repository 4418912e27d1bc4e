"""Values → what people and programs read: terminal, JSON, CSV, templates. The only package with rich and tabulate."""
