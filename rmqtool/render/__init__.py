"""Values as text for people and programs: terminal, JSON, CSV, templates. Only this room imports rich and tabulate."""
