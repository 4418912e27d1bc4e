/* Records to be written. A record is made without its place (zeros where queue offset, physical offset and store time
 * go); place_record fills those in when its writer knows them. */

enum { CRC_DIGITS = 10, CRC_BLOCK = sizeof PROPERTY_CRC_NAME - 1 + 1 + CRC_DIGITS + 1 };

typedef struct { Text ip; int32_t port; } Host;

/* What a record is made of. ``topic`` has its length before it; ``tail`` is what follows the body. */
typedef struct {
    uint32_t magic, sys_flag;
    int32_t queue_id, flag, reconsume_times;
    int64_t queue_offset, physical_offset, born_timestamp, store_timestamp, prepared_transaction_offset;
    Host born_host, store_host;
    Text body;
} Content;

enum { SHORT_IP = 4, LONG_IP = 16 };

static inline int is_ip(Text ip) { return ip.length == SHORT_IP || ip.length == LONG_IP; }

/* Return the size of everything before the body. */
static inline uint32_t prefix_size(const Content *c) {
    return MESSAGE_PREFIX_V4V4_SIZE + c->born_host.ip.length + c->store_host.ip.length - 2 * SHORT_IP;
}

static uint8_t *put_address(uint8_t *to, Host host) {
    memcpy(to, host.ip.p, host.ip.length);
    put32(to + host.ip.length, (uint32_t)host.port);
    return to + host.ip.length + 4;
}

/* Put the prefix and the body of a record of ``size`` bytes; return where what follows the body goes. */
static uint8_t *put_head(uint8_t *p, const Content *c, uint32_t size) {
    uint32_t host_bits = (c->born_host.ip.length == LONG_IP ? SYS_FLAG_BORN_HOST_V6 : 0) |
                         (c->store_host.ip.length == LONG_IP ? SYS_FLAG_STORE_HOST_V6 : 0);
    put32(p + FIELD(TOTAL_SIZE), size), put32(p + FIELD(MAGIC), c->magic);
    put32(p + FIELD(BODY_CRC), crc31_of(c->body.p, c->body.length));
    put32(p + FIELD(QUEUE_ID), (uint32_t)c->queue_id), put32(p + FIELD(FLAG), (uint32_t)c->flag);
    put64(p + FIELD(QUEUE_OFFSET), (uint64_t)c->queue_offset), put64(p + FIELD(PHYSICAL_OFFSET), (uint64_t)c->physical_offset);
    put32(p + FIELD(SYS_FLAG), (c->sys_flag & ~(uint32_t)(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)) | host_bits);
    put64(p + FIELD(BORN_TIMESTAMP), (uint64_t)c->born_timestamp);
    uint8_t *at = put_address(p + FIELD(BORN_HOST_IP), c->born_host);
    put64(at, (uint64_t)c->store_timestamp);
    at = put_address(at + 8, c->store_host);
    put32(at, (uint32_t)c->reconsume_times), put64(at + 4, (uint64_t)c->prepared_transaction_offset);
    put32(at + 12, c->body.length);
    if (c->body.length) memcpy(at + 16, c->body.p, c->body.length);
    return at + 16 + c->body.length;
}

/* Put the checksum block that ends a record of ``size`` bytes. */
static void put_property_crc(uint8_t *p, size_t size) {
    static const char head[] = PROPERTY_CRC_NAME NAME_VALUE_SEPARATOR;
    uint8_t *block = p + size - CRC_BLOCK, *digits = block + sizeof head - 1;
    uint32_t crc = crc31_of(p, size - CRC_BLOCK);
    memcpy(block, head, sizeof head - 1);
    for (int digit = 0; digit < CRC_DIGITS; digit++, crc /= 10) digits[digit] = (uint8_t)('0' + crc % 10);
    digits[CRC_DIGITS] = PROPERTY_SEPARATOR[0];
}

/* Put into a record of ``size`` bytes what only its writer knows. */
static void place_record(uint8_t *p, size_t size, int64_t queue_offset, int64_t place, int64_t store_timestamp, int has_crc) {
    uint32_t growth = be32(p + FIELD(SYS_FLAG)) & SYS_FLAG_BORN_HOST_V6 ? HOST_GROWTH : 0;
    put64(p + FIELD(QUEUE_OFFSET), (uint64_t)queue_offset), put64(p + FIELD(PHYSICAL_OFFSET), (uint64_t)place);
    put64(p + FIELD(STORE_TIMESTAMP) + growth, (uint64_t)store_timestamp);
    if (has_crc) put_property_crc(p, size);
}

/* Properties in the order in which they are stored. A separator is between them, or after each of them. */
typedef struct { const Pair *pairs; size_t count; int is_terminated; } Properties;

static uint64_t size_of_text(const Properties *t) {
    uint64_t size = 0;
    for (size_t i = 0; i < t->count; i++) size += (uint64_t)t->pairs[i].name.length + t->pairs[i].value.length + 2;
    return size && !t->is_terminated ? size - 1 : size;
}

/* Put the text of properties; return its end. */
static uint8_t *put_properties(uint8_t *to, const Properties *t) {
    for (size_t i = 0; i < t->count; i++) {
        Text name = t->pairs[i].name, value = t->pairs[i].value;
        memcpy(to, name.p, name.length), to += name.length, *to++ = NAME_VALUE_SEPARATOR[0];
        memcpy(to, value.p, value.length), to += value.length;
        if (t->is_terminated || i + 1 < t->count) *to++ = PROPERTY_SEPARATOR[0];
    }
    return to;
}

/* Return the size of a whole record, whose topic has its length before it; 0 where it is too large, or its text is. */
static uint32_t size_of_plain(const Content *c, Text topic, const Properties *t, uint32_t most) {
    uint64_t text = size_of_text(t), size = (uint64_t)prefix_size(c) + c->body.length + topic.length + PROPERTIES_LENGTH_SIZE + text;
    return text <= MOST_SHORT && size <= most ? (uint32_t)size : 0;
}

/* Put a record of that size; return its end. */
static uint8_t *put_plain(uint8_t *to, const Content *c, Text topic, const Properties *t, uint32_t size) {
    uint64_t text = size_of_text(t);
    to = put_head(to, c, size);
    memcpy(to, topic.p, topic.length), to += topic.length;
    *to++ = (uint8_t)(text >> 8), *to++ = (uint8_t)text;
    return put_properties(to, t);
}
