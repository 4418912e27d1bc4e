"""Which messages are meant: tag expressions, SQL92 selectors, topic patterns. On one message, or on columns."""
