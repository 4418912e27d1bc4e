from __future__ import annotations

import pytest

from rmqtool.render.roff_reader import man_lines
from tools.manual.roff import Items, Page, Screen, Section, Table, Text, page_roff, table_lines

PAGE = Page(
    "rmqtool-try",
    1,
    "try everything",
    (
        Section("Description", (Text("First of `two words` and ~/store."), Text(".dotted 'start' of a\\b line"))),
        Section("Options", (Items((("`-t` TOPIC", ("Only it.",)), ("`--long-one` VALUE", ("One.", "Two.")))),)),
        Section("Of this", (Screen(("$ rmqtool cat 'x' | head", ".hidden … `y`", "")),), inner=True),
        Section("Rows", (Table(("n", "what"), (("1", "short"), ("20", "word " * 20)), frozenset({0})),)),
    ),
)

ROFF = r""".\" Written by make docs; change what it is made from.
.TH RMQTOOL\-TRY 1 2026-11-18 "rmqtool 1" "rmqtool manual"
.SH NAME
rmqtool\-try \- try everything
.SH DESCRIPTION
First of \fBtwo words\fR and \(ti/store.
.PP
\&.dotted \(aqstart\(aq of a\eb line
.SH OPTIONS
.TP
\fB\-t\fR TOPIC
Only it.
.TP
\fB\-\-long\-one\fR VALUE
One.
.sp
Two.
.SS "Of this"
.in 0
.nf
$ rmqtool cat \(aqx\(aq | head
\&.hidden \[u2026] \(gay\(ga

.fi
.in
.SH ROWS
.nf
 n  what
 1  short
20  word word word word word word word word word word word word word
    word word word word word word word
.fi
"""

SHOWN = """\
RMQTOOL-TRY(1)                   rmqtool manual                   RMQTOOL-TRY(1)

NAME
       rmqtool-try - try everything

DESCRIPTION
       First of two words and ~/store.

       .dotted 'start' of a\\b line

OPTIONS
       -t TOPIC
               Only it.

       --long-one VALUE
               One.

               Two.

   Of this
$ rmqtool cat 'x' | head
.hidden … `y`


ROWS
        n  what
        1  short
       20  word word word word word word word word word word word word word
           word word word word word word word

rmqtool 1                       2026-11-18                        RMQTOOL-TRY(1)"""


def test_a_page_in_roff() -> None:
    assert page_roff(PAGE, "2026-11-18", "rmqtool 1") == ROFF


def test_a_page_on_a_terminal() -> None:
    assert "\n".join(man_lines(ROFF, 80)) == SHOWN


def test_bold_goes_over_the_end_of_a_line_and_costs_no_width() -> None:
    source = ".SH A\n" + r"one \fBtwo three four\fR five" + "\n"
    lines = list(man_lines(source, 17, lambda text, _style: f"<{text}>"))
    assert lines[:4] == ["", "<A>", "       one <two>", "       <three four>"]
    assert lines[4] == "       five"


def test_a_short_term_stands_beside_what_explains_it() -> None:
    lines = list(man_lines(".SH A\n.TP\n\\fB70\\fR\nA bug in it.\n", 24))
    assert lines[2:4] == ["       70      A bug in", "               it."]


def test_a_request_that_the_manual_does_not_use_is_refused() -> None:
    with pytest.raises(ValueError, match="is not roff"):
        list(man_lines(".SH A\n.de macro\n", 80))


def test_only_the_last_column_of_a_table_is_broken() -> None:
    lines = table_lines(Table(("name", "meaning"), (("a" * 60, "one two three four"),)))
    assert lines == [
        "name" + " " * 58 + "meaning",
        "a" * 60 + "  one two",
        " " * 62 + "three four",
    ]
