/* One record of a commit log, looked at without trusting a byte of it.
 *
 * look_at is the one function that decides whether bytes are a message record. Every other function of the kernel calls
 * it for each record it touches and then stays inside what it found. Each length is read once: should another thread
 * change the bytes meanwhile, the values are wrong but no access leaves the buffer. */
#include <stdint.h>
#include <string.h>
#include "layouts.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel is written for little-endian processors; the package works without it"
#endif

static inline uint16_t be16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
static inline uint32_t be32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline uint64_t be64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
static inline int32_t int_at(const uint8_t *p) { return (int32_t)be32(p); }
static inline int64_t long_at(const uint8_t *p) { return (int64_t)be64(p); }
static inline void put32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static inline void put64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }

enum {
    /* An IPv6 address is so much longer than an IPv4 one. */
    HOST_GROWTH = MESSAGE_PREFIX_V6V4_SIZE - MESSAGE_PREFIX_V4V4_SIZE,
    PROPERTIES_LENGTH_SIZE = 2,
    /* The smallest record: IPv4 hosts, a topic length of one byte, and nothing in it. */
    LEAST_RECORD = MESSAGE_PREFIX_V4V4_SIZE + 1 + PROPERTIES_LENGTH_SIZE,
    MOST_TOPIC_V1 = 127,
    MOST_SHORT = 32767
};

/* Where a field is, by the growth of the hosts before it. */
#define FIELD(name) MESSAGE_PREFIX_V4V4_AT_##name

/* Where the parts of a record are, counted from its first byte. */
typedef struct {
    uint32_t size, magic, sys_flag;
    uint32_t born_growth;   /* of fields after the born host */
    uint32_t hosts_growth;  /* of fields after both hosts */
    uint32_t body, body_length, topic, topic_length, properties, properties_length;
} Parts;

/* Return whether a whole message record starts at ``p``, of which ``left`` bytes may be looked at. */
static inline int look_at(const uint8_t *p, int64_t left, Parts *r) {
    if (left < LEAST_RECORD) return 0;
    r->size = be32(p + FIELD(TOTAL_SIZE)), r->magic = be32(p + FIELD(MAGIC));
    if (r->magic != MESSAGE_MAGIC_V1 && r->magic != MESSAGE_MAGIC_V2) return 0;
    if (r->size < LEAST_RECORD || r->size > INT32_MAX || r->size > left) return 0;
    r->sys_flag = be32(p + FIELD(SYS_FLAG));
    r->born_growth = r->sys_flag & SYS_FLAG_BORN_HOST_V6 ? HOST_GROWTH : 0;
    r->hosts_growth = r->born_growth + (r->sys_flag & SYS_FLAG_STORE_HOST_V6 ? HOST_GROWTH : 0);
    r->body = MESSAGE_PREFIX_V4V4_SIZE + r->hosts_growth;
    uint32_t width = r->magic == MESSAGE_MAGIC_V1 ? 1 : 2; /* of the topic's length */
    uint32_t least = r->body + width + PROPERTIES_LENGTH_SIZE;
    if (r->size < least) return 0;
    r->body_length = be32(p + FIELD(BODY_LENGTH) + r->hosts_growth);
    if (r->body_length > r->size - least) return 0; /* a negative length is above every size */
    r->topic = r->body + r->body_length + width;
    r->topic_length = width == 1 ? p[r->topic - 1] : be16(p + r->topic - 2);
    if (r->topic_length > (width == 1 ? MOST_TOPIC_V1 : MOST_SHORT)) return 0;
    r->properties = r->topic + r->topic_length + PROPERTIES_LENGTH_SIZE;
    if (r->properties > r->size) return 0;
    r->properties_length = be16(p + r->properties - PROPERTIES_LENGTH_SIZE);
    return r->properties_length <= MOST_SHORT && r->properties + r->properties_length == r->size;
}

/* The same for a record at an offset that a caller gave: of ``data`` the bytes before ``end`` may be looked at. */
static inline int look_within(const uint8_t *data, int64_t end, int64_t at, Parts *r) {
    return at >= 0 && at <= end && look_at(data + at, end - at, r);
}
