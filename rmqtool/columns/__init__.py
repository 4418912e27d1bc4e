"""Many records at once: buffers to numpy and Arrow columns, and back. No policy, opens nothing.

``formats`` says what one record is; the modules here do the same for many, under the same names.
"""
