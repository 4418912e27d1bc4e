"""The real RocketMQ classes as an oracle: fetched by Maven, driven by the small programs in ``java/``.

No store is ever touched: everything runs on a copy. A Java start takes about a second, so ask about several stores in
one session and not once per assertion. From a shell: ``python -m tests.conformance.oracle --help``.
"""
