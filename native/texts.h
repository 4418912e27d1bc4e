/* Texts of a record: UTF-8, Java's hash of it, and the properties by name. */

typedef struct { const uint8_t *p; uint32_t length; } Text;

static inline int is_same(Text one, Text other) {
    return one.length == other.length && (!one.length || !memcmp(one.p, other.p, one.length));
}

static inline int is_word(Text text, const char *word, uint32_t length) {
    return text.length == length && !memcmp(text.p, word, length);
}
#define IS(text, literal) is_word(text, literal, sizeof(literal) - 1)

static const uint64_t TOP_BITS = 0x8080808080808080ull, ONES = 0x0101010101010101ull;

/* Return how long the UTF-8 sequence at ``p`` is that is longer than a byte; 0 where it is malformed. */
static size_t sequence_at(const uint8_t *p, size_t left) {
    if (p[0] >= 0xC2 && p[0] < 0xE0) return left > 1 && (p[1] & 0xC0) == 0x80 ? 2 : 0;
    if (left < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80) return 0;
    /* No longer form than needed, and no surrogates. */
    if (p[0] == 0xE0 ? p[1] >= 0xA0 : p[0] == 0xED ? p[1] < 0xA0 : p[0] > 0xE0 && p[0] < 0xF0) return 3;
    if (left < 4 || (p[3] & 0xC0) != 0x80) return 0;
    return (p[0] == 0xF0 ? p[1] >= 0x90 : p[0] == 0xF4 ? p[1] < 0x90 : p[0] > 0xF0 && p[0] < 0xF4) ? 4 : 0;
}

static int is_utf8(Text text) {
    const uint8_t *p = text.p, *end = p + text.length;
    while (p < end) {
        uint64_t eight, four[4];
        while (end - p >= 32 && (memcpy(four, p, 32), !((four[0] | four[1] | four[2] | four[3]) & TOP_BITS))) p += 32;
        while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & TOP_BITS))) p += 8;
        if (p == end) break;
        size_t length = *p < 0x80 ? 1 : sequence_at(p, (size_t)(end - p));
        if (!length) return 0;
        p += length;
    }
    return 1;
}

static const uint32_t POWER_8 = 852891037441ull & 0xFFFFFFFF; /* 31 ** 8 */

/* Continue ``*hash`` as ``String.hashCode`` over the UTF-16 units of ``text``; return 0 where it is no UTF-8. */
static int java_hash(Text text, uint32_t *hash) {
    uint32_t h = *hash;
    const uint8_t *p = text.p, *end = p + text.length;
    while (p < end) {
        for (uint64_t eight; end - p >= 8 && (memcpy(&eight, p, 8), !(eight & TOP_BITS)); p += 8)
            h = h * POWER_8 + (((p[0] * 31u + p[1]) * 961u + (p[2] * 31u + p[3])) * 923521u +
                               ((p[4] * 31u + p[5]) * 961u + (p[6] * 31u + p[7])));
        if (p == end) break;
        uint32_t c = *p;
        if (c < 0x80) { h = h * 31 + c, p++; continue; }
        size_t length = sequence_at(p, (size_t)(end - p));
        if (!length) return 0;
        c &= 0xFFu >> (length + 1);
        for (size_t i = 1; i < length; i++) c = c << 6 | (p[i] & 0x3F);
        p += length;
        if (c > 0xFFFF) h = h * 31 + (0xD7C0 + (c >> 10)), c = 0xDC00 | (c & 0x3FF);
        h = h * 31 + c;
    }
    *hash = h;
    return 1;
}

/* The hash that an index entry holds: not negative. The one that has no positive becomes 0. */
static inline uint32_t key_hash(uint32_t hash) { return hash >> 31 ? (hash == 1u << 31 ? 0 : -hash) : hash; }

/* A hash of bytes for the kernel's own tables. */
static inline uint32_t mix(const uint8_t *p, uint32_t length) {
    uint64_t h = length * 0x9E3779B97F4A7C15ull, word;
    for (; length >= 8; p += 8, length -= 8) memcpy(&word, p, 8), h = (h ^ word) * 0xFF51AFD7ED558CCDull, h ^= h >> 32;
    for (word = 0; length; length--) word = word << 8 | *p++;
    h = (h ^ word) * 0xFF51AFD7ED558CCDull;
    return (uint32_t)(h >> 32);
}

enum { TEXT_SLOTS = 8192, MOST_TEXTS = TEXT_SLOTS / 2 };

/* Number the texts at some offsets by their first appearance: ``codes`` gets the number of each, ``firsts`` a row of
 * each number. Return how many differ; -1 for more than ``most``, -2 where one is not inside ``data``. */
static int64_t number_texts(const uint8_t *data, int64_t size, const int64_t *offsets, const int64_t *lengths, size_t count,
                            int32_t *codes, int32_t *firsts, size_t most) {
    Text known[MOST_TEXTS];
    int32_t slots[TEXT_SLOTS], code;
    memset(slots, 0, sizeof slots);
    size_t used = 0;
    for (size_t n = 0; n < count; n++) {
        int64_t at = offsets[n], length = lengths[n];
        if (at < 0 || length < 0 || length > INT32_MAX || at > size || length > size - at) return -2;
        Text text = {data + at, (uint32_t)length};
        uint32_t slot = mix(text.p, text.length) % TEXT_SLOTS;
        while ((code = slots[slot]) && !is_same(known[code - 1], text)) slot = (slot + 1) % TEXT_SLOTS;
        if (!code) {
            if (used == most || used == MOST_TEXTS) return -1;
            known[used] = text, firsts[used] = (int32_t)n;
            code = slots[slot] = (int32_t)++used;
        }
        codes[n] = code - 1;
    }
    return (int64_t)used;
}

typedef struct { Text name, value; } Pair;

/* Take the next property of a block into ``pair`` and move ``*p`` after it; return 0 at the end of the block. Pieces
 * without a name or a value count for nothing; a value may contain the separator of name and value. */
static inline int next_pair(const uint8_t **p, const uint8_t *end, Pair *pair) {
    while (*p < end) {
        const uint8_t *from = *p, *to = memchr(from, PROPERTY_SEPARATOR[0], (size_t)(end - from));
        if (!to) to = end;
        *p = to == end ? end : to + 1;
        const uint8_t *split = memchr(from, NAME_VALUE_SEPARATOR[0], (size_t)(to - from));
        if (!split || split == from || to - split < 2) continue;
        pair->name = (Text){from, (uint32_t)(split - from)};
        pair->value = (Text){split + 1, (uint32_t)(to - split - 1)};
        return 1;
    }
    return 0;
}

/* The properties that dispatch looks at. Of one that occurs twice the last counts. */
typedef struct { Text tags, keys, uniq_key, delay, queues; } Named;

static void find_named(Text properties, Named *found) {
    memset(found, 0, sizeof *found);
    Pair pair;
    for (const uint8_t *p = properties.p, *end = p + properties.length; next_pair(&p, end, &pair);) switch (pair.name.length) {
        case 4:
            if (IS(pair.name, "TAGS")) found->tags = pair.value;
            else if (IS(pair.name, "KEYS")) found->keys = pair.value;
            break;
        case 5: if (IS(pair.name, "DELAY")) found->delay = pair.value; break;
        case 8: if (IS(pair.name, "UNIQ_KEY")) found->uniq_key = pair.value; break;
        case 20: if (IS(pair.name, "INNER_MULTI_DISPATCH")) found->queues = pair.value; break;
    }
}
