"""The bodies of requests and answers, by subject: routes, clients, the state of brokers.

Members that not every version of upstream has are optional: a value is written with the members it was given.
"""
