/* The properties of many records as columns of texts: all of them as maps, and some by their names.
 *
 * A column of texts is the texts back to back, and where each ends; before the first end is a zero. Unusual properties
 * are declined: a text that is not UTF-8, a name that a record has twice, more properties than are compared. */

enum { MOST_COMPARED = 32, MOST_WANTED = 8, LEAST_PAIR = 4 /* name, value, and the separators after them */ };

typedef struct { int32_t *ends; uint8_t *texts; size_t used; } Column;

typedef struct {
    Column names, values, wanted[MOST_WANTED]; /* one name and value a pair, one wanted value a record, empty if absent */
    Text called[MOST_WANTED];                  /* the names of the wanted ones */
    size_t count;                              /* of the wanted ones */
    size_t most_pairs, pairs, room, taken;     /* each column has room for as many bytes as all blocks together */
} Columns;

/* Append to a column; its room was checked for the whole block of properties. */
static inline int32_t append(Column *to, Text text) {
    uint8_t *at = to->texts + to->used;
    const uint8_t *from = text.p, *end = from + text.length;
    for (; end - from >= 8; from += 8, at += 8) memcpy(at, from, 8);
    while (from < end) *at++ = *from++;
    to->used += text.length;
    return (int32_t)to->used;
}

/* Return whether ``name`` is among the ``count`` names before it. */
static inline int repeats(const Text *names, size_t count, Text name) {
    for (size_t i = 0; i < count; i++) if (names[i].p[0] == name.p[0] && is_same(names[i], name)) return 1;
    return 0;
}

/* Add the properties of a record, which is row ``n``. Return 1, 0 where they are declined, -1 without room for them. */
static int add_properties(Columns *c, size_t n, Text block) {
    if (c->most_pairs - c->pairs < (block.length + 1) / LEAST_PAIR) return -1;
    if (c->room - c->taken < block.length) return -1;
    c->taken += block.length;
    if (!is_utf8(block)) return 0;
    Text names[MOST_COMPARED];
    Pair pair;
    size_t own = 0;
    for (const uint8_t *p = block.p, *end = p + block.length; next_pair(&p, end, &pair); own++) {
        if (own == MOST_COMPARED || repeats(names, own, pair.name)) return 0;
        names[own] = pair.name;
        c->pairs++;
        c->names.ends[c->pairs] = append(&c->names, pair.name), c->values.ends[c->pairs] = append(&c->values, pair.value);
        for (size_t i = 0; i < c->count; i++) if (is_same(c->called[i], pair.name)) { append(c->wanted + i, pair.value); break; }
    }
    for (size_t i = 0; i < c->count; i++) c->wanted[i].ends[n + 1] = (int32_t)c->wanted[i].used;
    return 1;
}

/* Fill columns with the blocks of properties at some offsets; ``ends`` says after which pair each record ends. Return
 * the number of pairs; -1 where properties are declined, -2 for a block that is outside of ``data`` or has no room. */
static int64_t fill_columns(Columns *c, const uint8_t *data, int64_t size, const int64_t *offsets, const int64_t *lengths,
                                  size_t count, int32_t *ends) {
    ends[0] = c->names.ends[0] = c->values.ends[0] = 0;
    for (size_t i = 0; i < c->count; i++) c->wanted[i].ends[0] = 0;
    for (size_t n = 0; n < count; n++) {
        int64_t at = offsets[n], length = lengths[n];
        if (at < 0 || length < 0 || length > MOST_SHORT || at > size || length > size - at) return -2;
        int done = add_properties(c, n, (Text){data + at, (uint32_t)length});
        if (done < 1) return done - 1;
        ends[n + 1] = (int32_t)c->pairs;
    }
    return (int64_t)c->pairs;
}
