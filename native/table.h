/* The fixed fields of many records as columns, and what is wrong with each record.
 *
 * A table is one buffer of the caller: column after column, each with room for ``capacity`` rows, the widest first, so
 * that every column is aligned. rmqtool/columns/compiled.py spells the same list; a test compares the two. */
#define COLUMNS(X)                                                                                                     \
    X(int64_t, file_offset) X(int64_t, physical_offset) X(int64_t, queue_offset) X(int64_t, born_timestamp)            \
    X(int64_t, store_timestamp) X(int64_t, prepared_transaction_offset)                                                \
    X(int64_t, body_offset) X(int64_t, topic_offset) X(int64_t, properties_offset)                                     \
    X(int64_t, body_length) X(int64_t, topic_length) X(int64_t, properties_length)                                     \
    X(int32_t, total_size) X(uint32_t, magic) X(int32_t, body_crc) X(int32_t, queue_id) X(int32_t, flag)               \
    X(int32_t, sys_flag) X(int32_t, born_host_port) X(int32_t, store_host_port) X(int32_t, reconsume_times)            \
    X(uint8_t, wrong)

typedef struct {
#define X(type, name) type *name;
    COLUMNS(X)
#undef X
} Table;

#define X(type, name) +sizeof(type)
enum { ROW_SIZE = 0 COLUMNS(X) };
#undef X

#define X(type, name) #name " "
static const char *const column_names = COLUMNS(X);
#undef X

static Table table_in(void *buffer, size_t capacity) {
    Table t;
    uint8_t *at = buffer;
#define X(type, name) t.name = (type *)(void *)at, at += sizeof(type) * capacity;
    COLUMNS(X)
#undef X
    return t;
}

/* What may be wrong with a record that is whole. Checksums are computed when they are among the wanted ``checks``. */
enum { WRONG_CRC = 1, WRONG_PLACE = 2, WRONG_TIME = 4, WRONG_PROPERTY_CRC = 8 };

/* Return whether the properties end with a checksum block that is not that of the bytes before it. */
static int property_crc_is_wrong(const uint8_t *p, const Parts *r) {
    static const char head[] = PROPERTY_CRC_NAME NAME_VALUE_SEPARATOR;
    enum { HEAD = sizeof head - 1, DIGITS = 10, BLOCK = HEAD + DIGITS + 1 };
    if (r->properties_length < BLOCK) return 0;
    const uint8_t *block = p + r->size - BLOCK;
    if (memcmp(block, head, HEAD) || block[BLOCK - 1] != PROPERTY_SEPARATOR[0]) return 0;
    uint64_t stored = 0;
    for (int digit = DIGITS - 1; digit >= 0; digit--) { /* the least significant digit comes first */
        uint32_t value = (uint32_t)block[HEAD + digit] - '0';
        if (value > 9) return 0;
        stored = stored * 10 + value;
    }
    return stored != crc31_of(p, (size_t)(block - p));
}

/* Fill row ``n`` with the record at ``at``; byte 0 of ``data`` is at ``base`` of the log. */
static inline void fill_row(Table t, size_t n, const uint8_t *data, int64_t at, const Parts *r, int64_t base, int checks) {
    const uint8_t *p = data + at, *after_born = p + r->born_growth, *after_hosts = p + r->hosts_growth;
    t.file_offset[n] = at;
    t.total_size[n] = (int32_t)r->size, t.magic[n] = r->magic;
    int32_t crc = t.body_crc[n] = int_at(p + FIELD(BODY_CRC));
    t.queue_id[n] = int_at(p + FIELD(QUEUE_ID)), t.flag[n] = int_at(p + FIELD(FLAG));
    t.queue_offset[n] = long_at(p + FIELD(QUEUE_OFFSET));
    int64_t place = t.physical_offset[n] = long_at(p + FIELD(PHYSICAL_OFFSET));
    t.sys_flag[n] = (int32_t)r->sys_flag, t.born_timestamp[n] = long_at(p + FIELD(BORN_TIMESTAMP));
    t.born_host_port[n] = int_at(after_born + FIELD(BORN_HOST_PORT));
    int64_t time = t.store_timestamp[n] = long_at(after_born + FIELD(STORE_TIMESTAMP));
    t.store_host_port[n] = int_at(after_hosts + FIELD(STORE_HOST_PORT));
    t.reconsume_times[n] = int_at(after_hosts + FIELD(RECONSUME_TIMES));
    t.prepared_transaction_offset[n] = long_at(after_hosts + FIELD(PREPARED_TRANSACTION_OFFSET));
    t.body_offset[n] = at + r->body, t.body_length[n] = r->body_length;
    t.topic_offset[n] = at + r->topic, t.topic_length[n] = r->topic_length;
    t.properties_offset[n] = at + r->properties, t.properties_length[n] = r->properties_length;
    int wrong = ((uint64_t)place != (uint64_t)base + (uint64_t)at ? WRONG_PLACE : 0) | (time <= 0 ? WRONG_TIME : 0);
    /* Brokers and clients do not look at the checksum of an empty body. */
    if (checks & WRONG_CRC && r->body_length && (int32_t)crc31_of(p + r->body, r->body_length) != crc) wrong |= WRONG_CRC;
    if (checks & WRONG_PROPERTY_CRC && property_crc_is_wrong(p, r)) wrong |= WRONG_PROPERTY_CRC;
    t.wrong[n] = (uint8_t)wrong;
}

/* Fill rows with the records from ``*at`` on, one after the other; ``*at`` is then where the last one ends. */
static size_t scan_rows(Table t, size_t capacity, const uint8_t *data, int64_t end, int64_t *at, int64_t base, int checks) {
    enum { AHEAD = 2048, CACHE_LINE = 64 };
    size_t n = 0;
    Parts r;
    for (; n < capacity && look_at(data + *at, end - *at, &r); n++) {
        /* What the next records need comes from memory while this one is looked at. */
        for (int64_t ahead = *at + AHEAD, stop = ahead + r.size; ahead < stop && ahead < end; ahead += CACHE_LINE)
            __builtin_prefetch(data + ahead);
        fill_row(t, n, data, *at, &r, base, checks);
        *at += r.size;
    }
    return n;
}

/* Fill rows with the records at given offsets, up to the first offset where none is. */
static size_t decode_rows(Table t, const int64_t *offsets, size_t count, const uint8_t *data, int64_t end, int64_t base, int checks) {
    size_t n = 0;
    Parts r;
    for (; n < count && look_within(data, end, offsets[n], &r); n++)
        fill_row(t, n, data, offsets[n], &r, base, checks);
    return n;
}

/* Return how many of the records at ``offsets``, up to the first that is not, are whole, name their place, have a time
 * and are not rolled back: messages by everything but their checksums. A repair's placeholders are rolled back. */
static size_t sound_rows(const int64_t *offsets, size_t count, const uint8_t *data, int64_t end, int64_t base) {
    enum { AHEAD = 12, CACHE_LINE = 64 };
    size_t n = 0;
    Parts r;
    for (; n < count && look_within(data, end, offsets[n], &r); n++) {
        const uint8_t *p = data + offsets[n];
        uint64_t place = be64(p + FIELD(PHYSICAL_OFFSET));
        if (place != (uint64_t)base + (uint64_t)offsets[n] || long_at(p + r.born_growth + FIELD(STORE_TIMESTAMP)) <= 0) break;
        if ((r.sys_flag & TRANSACTION_MASK) == TRANSACTION_ROLLBACK) break;
        /* An address ahead is only a guess of the next lengths' place: a wrong one is ignored, not read. */
        uintptr_t ahead = (uintptr_t)p + (uintptr_t)AHEAD * r.size;
        for (int line = 0; line < 2; line++) __builtin_prefetch((const void *)(ahead + (uintptr_t)line * CACHE_LINE));
        __builtin_prefetch((const void *)(ahead + r.topic));
    }
    return n;
}
