/* Batches of a client: several messages in one body, back to back, as formats/batches.py shows them. Each becomes a
 * record of its own. take_item proves one message of a batch; what it refuses, ``formats`` judges. */

#define ITEM(name) BATCH_ITEM_AT_##name

typedef struct { Text body, properties; int32_t flag; uint32_t size; } Item;

/* What all records of a batch have in common. ``shared`` are properties that each of them gets after its own. */
typedef struct { Content common; Text topic, shared, messages; uint32_t most; } Batch;

/* Take the message at ``p``, of which ``left`` bytes may be looked at. */
static int take_item(const uint8_t *p, size_t left, Item *item) {
    enum { LEAST_ITEM = BATCH_ITEM_SIZE + PROPERTIES_LENGTH_SIZE };
    if (left < LEAST_ITEM) return 0;
    item->size = be32(p + ITEM(TOTAL_SIZE)), item->flag = int_at(p + ITEM(FLAG));
    uint32_t body = be32(p + ITEM(BODY_LENGTH));
    if (item->size < LEAST_ITEM || item->size > left) return 0;
    if (body > item->size - LEAST_ITEM) return 0; /* a negative length is above every size */
    const uint8_t *end = p + BATCH_ITEM_SIZE + body;
    uint32_t length = be16(end);
    if (length > MOST_SHORT || LEAST_ITEM + body + length != item->size) return 0;
    item->body = (Text){p + BATCH_ITEM_SIZE, body};
    item->properties = (Text){end + PROPERTIES_LENGTH_SIZE, length};
    return 1;
}

/* Whether a separator goes between the properties of a message and those that all get. */
static inline int is_parted(const Batch *b, const Item *item) {
    uint32_t length = item->properties.length;
    return length && b->shared.length && item->properties.p[length - 1] != PROPERTY_SEPARATOR[0];
}

static inline uint32_t properties_of(const Batch *b, const Item *item) {
    return item->properties.length + (uint32_t)is_parted(b, item) + b->shared.length;
}

static inline uint64_t record_of(const Batch *b, const Item *item) {
    return (uint64_t)prefix_size(&b->common) + item->body.length + b->topic.length + PROPERTIES_LENGTH_SIZE + properties_of(b, item);
}

/* Return how many messages a batch has, and the size of their records together; 0: ``formats`` judges it. */
static size_t measure_batch(const Batch *b, uint64_t *total) {
    const uint8_t *p = b->messages.p;
    size_t left = b->messages.length, count = 0;
    Item item;
    for (*total = 0; left; p += item.size, left -= item.size, count++) {
        if (!take_item(p, left, &item) || properties_of(b, &item) > MOST_SHORT || record_of(b, &item) > b->most) return 0;
        *total += record_of(b, &item);
    }
    return *total <= INT32_MAX ? count : 0;
}

/* Put the records of a batch that was measured; return the end. The bytes are the caller's: they may not have changed. */
static uint8_t *put_batch(Batch *b, uint8_t *to) {
    const uint8_t *p = b->messages.p;
    size_t left = b->messages.length;
    Item item;
    for (; left && take_item(p, left, &item); p += item.size, left -= item.size) {
        uint32_t length = properties_of(b, &item);
        b->common.flag = item.flag, b->common.body = item.body;
        to = put_head(to, &b->common, (uint32_t)record_of(b, &item));
        memcpy(to, b->topic.p, b->topic.length), to += b->topic.length;
        *to++ = (uint8_t)(length >> 8), *to++ = (uint8_t)length;
        memcpy(to, item.properties.p, item.properties.length), to += item.properties.length;
        if (is_parted(b, &item)) *to++ = PROPERTY_SEPARATOR[0];
        memcpy(to, b->shared.p, b->shared.length), to += b->shared.length;
    }
    return to;
}

/* Put their places into records that are back to back, the first at ``place``; return how many, at most ``most``. */
static size_t place_records(uint8_t *p, size_t size, int64_t queue_offset, int64_t place, int64_t store_timestamp, int64_t *places, size_t most) {
    size_t at = 0, count = 0;
    Parts r;
    for (; count < most && look_at(p + at, (int64_t)(size - at), &r); at += r.size, count++) {
        places[count] = (int64_t)((uint64_t)place + at);
        place_record(p + at, r.size, (int64_t)((uint64_t)queue_offset + count), places[count], store_timestamp, 0);
    }
    return at == size ? count : 0;
}
