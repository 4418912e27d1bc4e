"""The log against its queues and its index: what each record is due there, and where the files differ from that."""
