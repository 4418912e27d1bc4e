"""Many records at once: buffers to numpy and Arrow columns, and back. No policy, opens no file.

``formats`` says what one record is; the modules here do the same for many, under the same names. A *column* has a value
for each record, a *row* is the number of a record in it. A *piece* is a range of a buffer, given by offset and length.
A *coded* column has numbers in place of its values, and a list of the distinct values. The *kernel* is the optional C
code (``rmqtool.kernel``); Python code does all that it does, with the same result. Where columns cannot do exactly as
``formats`` does, they *decline*: the caller takes those records one by one.
"""
