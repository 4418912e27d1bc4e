"""A group of consumers: who gets which queues, what is fetched, what is finished, where the group goes on."""
