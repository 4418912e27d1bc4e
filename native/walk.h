/* Where records start, by magic and size alone.
 *
 * Each hop from size to size is a miss in the caches whose address only the hop before gives. So some walks go at once,
 * each from an offset that looks like a record's start. A walk is right exactly when the one before it ends on its
 * start; where that fails (a body that holds a record) the walk goes on alone until it meets a start again. The answer
 * is always that of one walk. */

enum { CHAINS = 16, WALK_BLOCK = 1 << 20, LEAST_WALK_BLOCK = 1 << 16 };

/* Return where the record at ``at`` ends by its size, or -1 where none starts. */
static inline int64_t hop(const uint8_t *data, int64_t end, int64_t at) {
    if (end - at < LEAST_RECORD) return -1;
    uint32_t size = be32(data + at + FIELD(TOTAL_SIZE)), magic = be32(data + at + FIELD(MAGIC));
    if (magic != MESSAGE_MAGIC_V1 && magic != MESSAGE_MAGIC_V2) return -1;
    return size >= LEAST_RECORD && size <= INT32_MAX && size <= end - at ? at + size : -1;
}

/* Return the first offset from ``at`` on, its magic before ``stop``, with a record that names its own place; or -1. */
static int64_t find_seed(const uint8_t *data, int64_t end, int64_t at, int64_t stop, uint64_t base) {
    for (const uint8_t *p = data + at; (p = memchr(p, MESSAGE_MAGIC_V1 >> 24, (size_t)(data + stop - p))); p++) {
        int64_t from = p - data - FIELD(MAGIC);
        if (from >= at && hop(data, end, from) >= 0 && be64(data + from + FIELD(PHYSICAL_OFFSET)) - base == (uint64_t)from)
            return from;
    }
    return -1;
}

/* Walk alone from ``*at`` while it is before ``stop``; return where the starts end. */
static inline int64_t *walk_alone(const uint8_t *data, int64_t end, int64_t *at, int64_t stop, int64_t *to) {
    for (int64_t next; *at < stop && (next = hop(data, end, *at)) >= 0; *at = next) *to++ = *at;
    return to;
}

/* Walk from ``*at``, where a record starts, to the first start at or after ``stop``. A record has LEAST_RECORD bytes
 * at least; ``starts`` has room for so many and CHAINS more. */
static size_t walk_block(const uint8_t *data, int64_t end, int64_t *at, int64_t stop, int64_t *starts) {
    int64_t seeds[CHAINS + 1] = {*at}, now[CHAINS], *begins[CHAINS], *fills[CHAINS], stride = (stop - *at) / CHAINS;
    uint64_t base = be64(data + *at + FIELD(PHYSICAL_OFFSET)) - (uint64_t)*at;
    int chains = 1, going[CHAINS];
    for (int i = 1; i < CHAINS && stop - *at >= LEAST_WALK_BLOCK; i++) {
        int64_t from = *at + i * stride, found = find_seed(data, end, from, from + stride, base);
        if (found >= 0) seeds[chains++] = found;
    }
    seeds[chains] = stop;
    for (int i = 0; i < chains; i++) {
        /* Between its seed and the next a chain finds no more starts than there is room before the next one's. */
        now[i] = seeds[i], going[i] = i;
        begins[i] = fills[i] = starts + (seeds[i] - *at) / LEAST_RECORD + i;
    }
    for (int live = chains; live;)
        for (int j = 0; j < live;) {
            int i = going[j];
            int64_t next = now[i] < seeds[i + 1] ? hop(data, end, now[i]) : -1;
            if (next < 0) { going[j] = going[--live]; continue; }
            *fills[i]++ = now[i], now[i] = next, j++;
            __builtin_prefetch(data + next);
        }
    int64_t *to = starts, place = *at;
    for (int i = 0; i < chains; i++) {
        to = walk_alone(data, end, &place, seeds[i], to);
        if (place < seeds[i]) break;
        if (place > seeds[i]) continue; /* the seed is inside a record */
        size_t found = (size_t)(fills[i] - begins[i]);
        memmove(to, begins[i], found * sizeof *to);
        to += found, place = now[i];
    }
    to = walk_alone(data, end, &place, stop, to);
    *at = place;
    return (size_t)(to - starts);
}

/* Walk from ``*at`` on until there is no room left or no record starts; ``*at`` is then where the walk is. */
static size_t walk(const uint8_t *data, int64_t end, int64_t *at, int64_t *starts, size_t room) {
    size_t found = 0;
    for (int64_t next; found < room && (next = hop(data, end, *at)) >= 0;) {
        int64_t stop = end - *at < WALK_BLOCK ? end : *at + WALK_BLOCK;
        if (room - found > (size_t)(stop - *at) / LEAST_RECORD + CHAINS) found += walk_block(data, end, at, stop, starts + found);
        else starts[found++] = *at, *at = next;
    }
    return found;
}
