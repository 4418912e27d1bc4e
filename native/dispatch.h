/* From records to what their queues and the index get: topics by number, queue units, and the hashes of all keys.
 *
 * What a row needs beyond this (malformed UTF-8, further queues, numbers in other digits) is declined: its flags say
 * what of it the caller has to make by the rules of formats.dispatch. */

enum {
    ODD_TAGS = 1,      /* the tags code of the unit is not made */
    ODD_KEYS = 2,      /* the keys are not among the keys */
    NAMES_QUEUES = 4,  /* the record names further queues */
    NOT_TEXT = 8,      /* the properties are no UTF-8 */
    BESIDE_QUEUE = 16  /* a prepared or rolled-back record: it has no unit in its queue */
};

/* The arrays to fill, with what fits into them. */
typedef struct {
    int32_t *topic_codes;               /* of each row */
    uint8_t *units;                     /* of each row */
    uint8_t *flags;                     /* of each row */
    int32_t *topic_rows;                /* the first row of each topic */
    int32_t *key_hashes, *key_rows;     /* of each unique key and key, in the order of the index */
    int32_t *tag_hashes;                /* of each row, -1 where its tag is not indexed; 5.4 does */
    const int64_t *delays;              /* of each delay level, ms */
    size_t most_topics, most_keys, levels;
    size_t topics, keys;                /* how many there are */
} Dispatched;

enum { TOPIC_SLOTS = 4096 };

typedef struct {
    Text name;
    uint32_t code;      /* its number and 1; 0 in a free slot */
    uint32_t hash;      /* of "topic#" */
    uint8_t is_text, is_delayed;
} Topic;

static void describe_topic(Topic *topic, Text name, size_t number) {
    topic->name = name, topic->code = (uint32_t)number + 1, topic->hash = 0;
    topic->is_text = (uint8_t)java_hash(name, &topic->hash);
    topic->hash = topic->hash * 31 + '#';
    topic->is_delayed = (uint8_t)IS(name, SCHEDULE_TOPIC);
}

/* Return the topic of a row, entered where it is new; NULL where there is no room for one more. */
static Topic *topic_of(Topic *slots, Dispatched *d, Text name, int32_t row) {
    uint32_t slot = mix(name.p, name.length) % TOPIC_SLOTS;
    while (slots[slot].code && !is_same(slots[slot].name, name)) slot = (slot + 1) % TOPIC_SLOTS;
    Topic *topic = slots + slot;
    if (topic->code) return topic;
    if (d->topics == d->most_topics || d->topics == TOPIC_SLOTS / 2) return NULL;
    d->topic_rows[d->topics] = row;
    describe_topic(topic, name, d->topics++);
    return topic;
}

/* Read a delay level as Java reads an int; 0 where it is no such number. Return 0 for what is not ASCII. */
static int read_level(Text text, size_t levels, size_t *level) {
    enum { MOST_DIGITS = 100 };
    const uint8_t *p = text.p, *end = p + text.length;
    *level = 0;
    for (const uint8_t *q = p; q < end; q++)
        if (*q >= 0x80) return 0;
    int is_negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+')) p++;
    if (p == end || end - p > MOST_DIGITS) return 1;
    int64_t number = 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') return 1;
        number = number * 10 + (*p - '0');
        if (number > INT32_MAX) number = (int64_t)INT32_MAX + 1; /* too large, whatever follows */
    }
    if (!is_negative && number > 0 && number <= INT32_MAX) *level = (uint64_t)number < levels ? (size_t)number : levels;
    return 1;
}

/* Make the tags code of a record's unit; return 0 where that is left to the caller. */
static int tags_code(const Dispatched *d, const Topic *topic, const Named *named, int64_t store_timestamp, int64_t *code) {
    if (topic->is_delayed) {
        size_t level;
        if (!read_level(named->delay, d->levels, &level)) return 0;
        if (level) { *code = (int64_t)((uint64_t)store_timestamp + (uint64_t)d->delays[level - 1]); return 1; }
    }
    uint32_t hash = 0;
    if (!topic->is_text || !java_hash(named->tags, &hash)) return 0;
    *code = (int32_t)hash;
    return 1;
}

static int add_key(Dispatched *d, int32_t row, uint32_t hash, Text text) {
    if (!java_hash(text, &hash)) return 0;
    d->key_hashes[d->keys] = (int32_t)key_hash(hash), d->key_rows[d->keys++] = row;
    return 1;
}

/* Add the keys of a record: its unique key, its keys one by one, and its tag. Return 0 where one is no text. */
static int add_keys(Dispatched *d, const Topic *topic, const Named *named, int32_t row) {
    if (!topic->is_text) return 0;
    uint32_t tag_hash = (topic->hash * 31 + 'T') * 31 + '#';
    if (!java_hash(named->tags, &tag_hash)) return 0;
    if (named->tags.length) d->tag_hashes[row] = (int32_t)key_hash(tag_hash);
    if (named->uniq_key.length && !add_key(d, row, topic->hash, named->uniq_key)) return 0;
    const uint8_t *p = named->keys.p, *end = p + named->keys.length;
    for (const uint8_t *space; p < end; p = space == end ? end : space + 1) {
        space = memchr(p, ' ', (size_t)(end - p));
        if (!space) space = end;
        Text key = {p, (uint32_t)(space - p)};
        if (key.length && !add_key(d, row, topic->hash, key)) return 0;
    }
    return 1;
}

/* Dispatch the record at ``p`` as row ``n``; return 0 where there is no room for its keys. */
static int dispatch_row(Dispatched *d, const Topic *topic, const uint8_t *p, const Parts *r, size_t n) {
    Text properties = {p + r->properties, r->properties_length};
    Named named;
    find_named(properties, &named);
    /* A unique key, and keys of a byte and a space each. */
    if (d->keys + 1 + (named.keys.length + 1) / 2 > d->most_keys) return 0;
    d->topic_codes[n] = (int32_t)topic->code - 1;
    int64_t code = 0;
    int flags = tags_code(d, topic, &named, long_at(p + r->born_growth + FIELD(STORE_TIMESTAMP)), &code) ? 0 : ODD_TAGS;
    uint8_t *unit = d->units + CONSUME_QUEUE_UNIT_SIZE * n;
    memcpy(unit + CONSUME_QUEUE_UNIT_AT_PHYSICAL_OFFSET, p + FIELD(PHYSICAL_OFFSET), 8);
    put32(unit + CONSUME_QUEUE_UNIT_AT_SIZE, r->size);
    put64(unit + CONSUME_QUEUE_UNIT_AT_TAGS_CODE, (uint64_t)code);
    uint32_t transaction = r->sys_flag & TRANSACTION_MASK;
    size_t before = d->keys;
    d->tag_hashes[n] = -1;
    if (transaction != TRANSACTION_ROLLBACK && !add_keys(d, topic, &named, (int32_t)n)) flags |= ODD_KEYS, d->keys = before, d->tag_hashes[n] = -1;
    if (transaction == TRANSACTION_PREPARED || transaction == TRANSACTION_ROLLBACK) flags |= BESIDE_QUEUE;
    if (named.queues.length) flags |= NAMES_QUEUES;
    if (!is_utf8(properties)) flags |= NOT_TEXT;
    d->flags[n] = (uint8_t)flags;
    return 1;
}

/* Return how many of the records at ``offsets`` were dispatched: fewer than ``count`` where there is no room for a topic
 * or for keys, or no record. */
static size_t dispatch_rows(Dispatched *d, const uint8_t *data, int64_t end, const int64_t *offsets, size_t count) {
    Topic slots[TOPIC_SLOTS];
    memset(slots, 0, sizeof slots);
    Parts r;
    size_t n;
    for (n = 0; n < count && look_within(data, end, offsets[n], &r); n++) {
        const uint8_t *p = data + offsets[n];
        const Topic *topic = topic_of(slots, d, (Text){p + r.topic, r.topic_length}, (int32_t)n);
        if (!topic || !dispatch_row(d, topic, p, &r, n)) return n;
    }
    return n;
}

enum { KEYS_OF_ONE = 256 };

/* One record and what its queue and the index get. */
typedef struct {
    Parts parts;
    int32_t topic_code, topic_row, tag_hash, hashes[KEYS_OF_ONE], rows[KEYS_OF_ONE];
    uint8_t unit[CONSUME_QUEUE_UNIT_SIZE], flags;
    size_t keys;
} Single;

/* Dispatch the record at ``at``; return 0 where none is, or where a part of it is left to the caller. */
static int dispatch_one(Single *s, const uint8_t *data, int64_t end, int64_t at, const int64_t *delays, size_t levels) {
    if (!look_within(data, end, at, &s->parts)) return 0;
    Dispatched d = {&s->topic_code, s->unit, &s->flags, &s->topic_row, s->hashes, s->rows, &s->tag_hash, delays, 1, KEYS_OF_ONE, levels, 0, 0};
    Topic topic;
    describe_topic(&topic, (Text){data + at + s->parts.topic, s->parts.topic_length}, 0);
    int is_done = dispatch_row(&d, &topic, data + at, &s->parts, 0);
    s->keys = d.keys;
    return is_done && !(s->flags & ~BESIDE_QUEUE);
}

/* Sort rows by queue, those of one queue in their order. ``order`` gets the rows, ``ends`` where each queue ends in it,
 * ``firsts`` a row of each queue; ``codes`` is scratch. Return the number of queues, or -1 for more than ``most``. */
static int64_t group_rows(const int32_t *topic_codes, const int32_t *queue_ids, size_t count, int32_t *order, int32_t *codes,
                          int32_t *ends, int32_t *firsts, size_t most) {
    enum { BITS = 14, SLOTS = 1 << BITS };
    int32_t slots[SLOTS];
    memset(slots, 0, sizeof slots);
    size_t used = 0;
    for (size_t n = 0; n < count; n++) {
        uint64_t queue = (uint64_t)(uint32_t)topic_codes[n] << 32 | (uint32_t)queue_ids[n];
        uint32_t slot = (uint32_t)(queue * 0x9E3779B97F4A7C15ull >> (64 - BITS));
        for (; slots[slot]; slot = (slot + 1) % SLOTS) {
            int32_t first = firsts[slots[slot] - 1];
            if (topic_codes[first] == topic_codes[n] && queue_ids[first] == queue_ids[n]) break;
        }
        if (!slots[slot]) {
            if (used == most || used == SLOTS / 2) return -1;
            firsts[used] = (int32_t)n, ends[used] = 0;
            slots[slot] = (int32_t)++used;
        }
        ends[codes[n] = slots[slot] - 1]++;
    }
    int32_t end = 0;
    for (size_t q = 0; q < used; q++) { int32_t begin = end; end += ends[q]; ends[q] = begin; }
    for (size_t n = 0; n < count; n++) order[ends[codes[n]]++] = (int32_t)n;
    return (int64_t)used;
}

/* The range of the log that the records of some queue entries are in. */
typedef struct { int64_t low, high, size; int has_gaps; } Span;

/* Find the range of the log from the first entry's record to the last one's, if all records are in it; ``starts`` gets
 * where each record starts in it, ``span->size`` is the sum of their sizes. Without gaps each begins where the one before it ends. */
static int span_of(Span *span, const uint8_t *units, size_t count, int64_t *starts) {
    int64_t most = 0;
    *span = (Span){0};
    for (size_t i = 0; i < count; i++, units += CONSUME_QUEUE_UNIT_SIZE) {
        int64_t place = long_at(units + CONSUME_QUEUE_UNIT_AT_PHYSICAL_OFFSET);
        int32_t size = int_at(units + CONSUME_QUEUE_UNIT_AT_SIZE);
        if (!i) span->low = place;
        if (size <= 0 || place < 0 || place < span->low || place > INT64_MAX - size) return 0;
        starts[i] = place - span->low;
        if (i && place != span->high) span->has_gaps = 1;
        span->high = place + size, span->size += size;
        if (span->high > most) most = span->high;
    }
    return count && most == span->high;
}
