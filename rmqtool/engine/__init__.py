"""A working store: put, flush, dispatch, recover, get, query, retention."""
