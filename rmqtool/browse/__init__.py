"""The terminal explorer of a store, and what it shows.

A *page* is a table of rows by position: queue offsets, file offsets, or numbers of rows. A page returns the rows from a
position on and finds the position of earlier rows, and reads only what these rows need. So a queue of a million
messages opens as fast as one of ten. A row has a *link*, a function that returns the page to which Enter goes. The
*tree* has a page for each part of a store. The *explorer* owns the open store and makes pages of words that people
type.

Only ``screen`` and ``panes`` import textual; everything else is tested without a terminal.
"""
