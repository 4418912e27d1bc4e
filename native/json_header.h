/* The parts of a JSON header as clients write it: texts and ints. Everything else is declined, and Python reads it. */

/* The usual numbers have at most so many digits; a header has at most so many members that are ignored. */
enum { INT_DIGITS = 9, LONG_DIGITS = 18, MOST_OTHER_MEMBERS = 16 };

/* Where the reader is, and the end of the header. */
typedef struct { const uint8_t *p, *end; } Reader;

static void skip_blanks(Reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r' || *r->p == '\n')) r->p++;
}

/* Step over a character and the blanks around it; return 0 where another one is there. */
static int take_mark(Reader *r, uint8_t mark) {
    skip_blanks(r);
    if (r->p == r->end || *r->p != mark) return 0;
    r->p++;
    skip_blanks(r);
    return 1;
}

/* Take the text between two quotes as it is written; ``*escapes`` says whether it has backslashes. Return 0 where it
 * does not end, has control characters, or is no UTF-8. */
static int take_string(Reader *r, Text *raw, int *escapes) {
    if (r->p == r->end || *r->p != '"') return 0;
    const uint8_t *begin = ++r->p;
    *escapes = 0;
    for (; r->p < r->end && *r->p != '"'; r->p++) {
        if (*r->p < 0x20) return 0;
        if (*r->p == '\\') {
            *escapes = 1;
            if (++r->p == r->end) return 0;
        }
    }
    if (r->p == r->end) return 0;
    *raw = (Text){begin, (uint32_t)(r->p++ - begin)};
    return is_utf8(*raw);
}

static int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Write the text that ``raw`` spells, which is never longer; return its length. -1: an escape of a character beyond
 * ASCII, or none. */
static int64_t unescape(Text raw, uint8_t *to) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const uint8_t *p = raw.p, *end = p + raw.length;
    uint8_t *begin = to;
    while (p < end) {
        if (*p != '\\') { *to++ = *p++; continue; }
        const char *found = p[1] ? strchr(letters, p[1]) : NULL;
        if (found) { *to++ = (uint8_t)meant[found - letters], p += 2; continue; }
        if (p[1] != 'u' || end - p < 6 || p[2] != '0' || p[3] != '0') return -1;
        int high = hex_digit(p[4]), low = hex_digit(p[5]);
        if (high < 0 || high > 7 || low < 0) return -1;
        *to++ = (uint8_t)(high << 4 | low), p += 6;
    }
    return to - begin;
}

/* Take an int of at most ten digits. Return 0 where none is there, or what Java does not have room for. */
static int take_number(Reader *r, int64_t *value) {
    int is_negative = r->p < r->end && *r->p == '-';
    const uint8_t *begin = r->p += is_negative;
    int64_t found = 0;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9' && r->p - begin < 11) found = found * 10 + (*r->p++ - '0');
    *value = is_negative ? -found : found;
    /* JSON has no leading zeros; a point or an exponent is not taken, so the member does not end here. */
    int is_plain = r->p > begin && r->p - begin <= 10 && (*begin != '0' || r->p - begin == 1);
    return is_plain && *value == (int32_t)*value;
}
