/* The contract's Message lines. A row that needs more than its bytes (an inflated body, malformed UTF-8 among names and
 * texts, very many properties) ends them: formats.message_json spells that one. */
#include <stdio.h>

enum { PLAIN = 0, ESCAPED = 1, LONGER = 2 };
static uint8_t json_kind[256];       /* of a byte in a string: as it is, to be escaped, part of a longer sequence */
static char json_escapes[32][8];     /* what stands for a control character */
static char two_digits[200], hex_pairs[512];
static char octets[256][4];          /* the parts of an IPv4 address, and how long each is */
static uint64_t tens[20];            /* the smallest number with one digit more, by the digits before */

static void json_init(void) {
    for (int c = 0; c < 256; c++) {
        json_kind[c] = c < 32 || c == '"' || c == '\\' ? ESCAPED : c >= 0x80 ? LONGER : PLAIN;
        hex_pairs[2 * c] = "0123456789ABCDEF"[c >> 4], hex_pairs[2 * c + 1] = "0123456789ABCDEF"[c & 15];
    }
    for (int c = 0; c < 32; c++) snprintf(json_escapes[c], sizeof json_escapes[c], "\\u%04x", (unsigned)c);
    for (const char *known = "\bb\ff\nn\rr\tt"; *known; known += 2)
        snprintf(json_escapes[(int)known[0]], sizeof json_escapes[0], "\\%c", known[1]);
    for (int n = 0; n < 100; n++) two_digits[2 * n] = (char)('0' + n / 10), two_digits[2 * n + 1] = (char)('0' + n % 10);
    for (int n = 0; n < 256; n++) snprintf(octets[n], sizeof octets[n], "%d", n), octets[n][3] = (char)strlen(octets[n]);
    tens[0] = 0, tens[1] = 10;
    for (int digits = 2; digits < 20; digits++) tens[digits] = tens[digits - 1] * 10;
}

static inline char *put_text(char *to, const char *text, size_t length) { memcpy(to, text, length); return to + length; }
#define PUT(to, literal) put_text(to, literal, sizeof(literal) - 1)

static inline char *put_digits(char *to, const char *pair) { memcpy(to, pair, 2); return to; }

static char *put_number(char *to, int64_t value) {
    if (value >= 0 && value < 10) { *to = (char)('0' + value); return to + 1; }
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    if (value < 0) *to++ = '-';
    /* 1233 / 4096 is the logarithm of 2: the digits by the bits, one too few from the next power of ten on. */
    int digits = (64 - __builtin_clzll(left | 1)) * 1233 >> 12;
    char *end = to + digits + (left >= tens[digits]), *at = end;
    for (; left >= 100; left /= 100) at = put_digits(at - 2, two_digits + 2 * (left % 100));
    if (left >= 10) put_digits(at - 2, two_digits + 2 * left);
    else at[-1] = (char)('0' + left);
    return end;
}

/* Return whether one of eight bytes is a control character, a quote, a backslash or above ASCII. */
static inline int are_special(uint64_t w) {
    uint64_t quotes = w ^ ONES * '"', slashes = w ^ ONES * '\\';
    return ((w | (w - ONES * 0x20) | (quotes - ONES) | (slashes - ONES)) & TOP_BITS) != 0;
}

/* Put a text whose bytes all stay as they are; NULL where one does not. The last eight bytes may be put twice. */
static inline char *put_unchanged(char *to, Text text) {
    const uint8_t *p = text.p;
    size_t at = 0, length = text.length;
    uint64_t w;
    for (; at + 8 <= length; at += 8) {
        memcpy(&w, p + at, 8);
        if (are_special(w)) return NULL;
        memcpy(to + at, &w, 8);
    }
    if (at && at < length) {
        memcpy(&w, p + length - 8, 8);
        if (are_special(w)) return NULL;
        memcpy(to + length - 8, &w, 8);
        at = length;
    }
    for (; at < length; at++) {
        if (json_kind[p[at]] != PLAIN) return NULL;
        to[at] = (char)p[at];
    }
    return to + length;
}

/* Put the text of a JSON string without its quotes, at most six bytes for one; NULL where it is no UTF-8. */
static char *put_string(char *to, Text text) {
    char *done = put_unchanged(to, text);
    if (done) return done;
    const uint8_t *p = text.p, *end = p + text.length;
    while (p < end) {
        for (uint64_t w; end - p >= 8; p += 8, to += 8) {
            memcpy(&w, p, 8);
            if (are_special(w)) break;
            memcpy(to, &w, 8);
        }
        for (int few = 0; p < end && few < 8; few++) {
            uint8_t kind = json_kind[*p];
            if (kind == PLAIN) *to++ = (char)*p++;
            else if (kind == LONGER) {
                size_t length = sequence_at(p, (size_t)(end - p));
                if (!length) return NULL;
                for (; length; length--) *to++ = (char)*p++;
            } else if (*p == '"' || *p == '\\') *to++ = '\\', *to++ = (char)*p++;
            else for (const char *e = json_escapes[*p++]; *e; e++) *to++ = *e;
        }
    }
    return to;
}

static char *put_quoted(char *to, Text text) {
    if (!text.p) return PUT(to, "null");
    *to++ = '"';
    if ((to = put_string(to, text))) *to++ = '"';
    return to;
}

static char *put_base64(char *to, Text body) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = body.p;
    size_t left = body.length;
    for (; left >= 3; p += 3, left -= 3) {
        uint32_t w = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        *to++ = digits[w >> 18], *to++ = digits[w >> 12 & 63], *to++ = digits[w >> 6 & 63], *to++ = digits[w & 63];
    }
    if (left) {
        uint32_t w = (uint32_t)p[0] << 16 | (left == 2 ? (uint32_t)p[1] << 8 : 0);
        *to++ = digits[w >> 18], *to++ = digits[w >> 12 & 63], *to++ = left == 2 ? digits[w >> 6 & 63] : '=', *to++ = '=';
    }
    return to;
}

static char *put_group(char *to, uint32_t group) {
    int shift = 12;
    while (shift && !(group >> shift)) shift -= 4;
    for (; shift >= 0; shift -= 4) *to++ = "0123456789abcdef"[group >> shift & 15];
    return to;
}

/* Put address and port; an IPv6 address as RFC 5952 has it, its longest run of zeros left out. */
static char *put_host(char *to, const uint8_t *address, int is_v6, int32_t port) {
    if (!is_v6) {
        for (int i = 0; i < 4; i++) {
            memcpy(to, octets[address[i]], 4);
            to += octets[address[i]][3], *to++ = i < 3 ? '.' : ':';
        }
        return put_number(to, port);
    }
    int best = 0, longest = 1;
    for (int i = 0, run = 0; i < 8; i++) {
        run = be16(address + 2 * i) ? 0 : run + 1;
        if (run > longest) longest = run, best = i + 1 - run;
    }
    *to++ = '[';
    for (int i = 0; i < 8; i++) {
        if (longest > 1 && i == best) { to = i ? PUT(to, ":") : PUT(to, "::"); i += longest - 1; continue; }
        to = put_group(to, be16(address + 2 * i));
        if (i < 7) *to++ = ':';
    }
    return put_number(PUT(to, "]:"), port);
}

static char *put_hex(char *to, const uint8_t *p, size_t length) {
    for (; length; length--, to += 2) memcpy(to, hex_pairs + 2 * *p++, 2);
    return to;
}

enum { MOST_PAIRS = 64 };

/* Return the properties as they are seen: of a name that occurs twice the first place and the last value. -1: too many. */
static int pairs_of(Text properties, Pair *pairs) {
    int count = 0;
    Pair pair;
    for (const uint8_t *p = properties.p, *end = p + properties.length; next_pair(&p, end, &pair);) {
        int at = 0;
        while (at < count && !is_same(pairs[at].name, pair.name)) at++;
        if (at == MOST_PAIRS) return -1;
        if (at == count) count++, pairs[at].name = pair.name;
        pairs[at].value = pair.value;
    }
    return count;
}

static Text value_of(const Pair *pairs, int count, const char *name, uint32_t length) {
    for (int i = 0; i < count; i++)
        if (is_word(pairs[i].name, name, length)) return pairs[i].value;
    return (Text){NULL, 0};
}
#define VALUE_OF(pairs, count, literal) value_of(pairs, count, literal, sizeof(literal) - 1)

static char *put_place(char *to, const uint8_t *p, const Parts *r) {
    to = put_number(PUT(to, "{\"commitLogOffset\": "), long_at(p + FIELD(PHYSICAL_OFFSET)));
    to = put_number(PUT(to, ", \"storeSize\": "), r->size);
    to = r->magic == MESSAGE_MAGIC_V1 ? PUT(to, ", \"magic\": \"0xdaa320a7\"") : PUT(to, ", \"magic\": \"0xdaa320ab\"");
    to = PUT(to, ", \"topic\": \"");
    if (!(to = put_string(to, (Text){p + r->topic, r->topic_length}))) return NULL;
    to = put_number(PUT(to, "\", \"queueId\": "), int_at(p + FIELD(QUEUE_ID)));
    to = put_number(PUT(to, ", \"queueOffset\": "), long_at(p + FIELD(QUEUE_OFFSET)));
    to = put_number(PUT(to, ", \"flag\": "), int_at(p + FIELD(FLAG)));
    return put_number(PUT(to, ", \"sysFlag\": "), (int32_t)r->sys_flag);
}

static char *put_times_and_hosts(char *to, const uint8_t *p, const Parts *r) {
    const uint8_t *after_born = p + r->born_growth, *after_hosts = p + r->hosts_growth;
    const uint8_t *born_host = p + FIELD(BORN_HOST_IP), *store_host = after_born + FIELD(STORE_HOST_IP);
    int born_is_v6 = !!(r->sys_flag & SYS_FLAG_BORN_HOST_V6), store_is_v6 = !!(r->sys_flag & SYS_FLAG_STORE_HOST_V6);
    to = put_number(PUT(to, ", \"bornTimestamp\": "), long_at(p + FIELD(BORN_TIMESTAMP)));
    to = put_host(PUT(to, ", \"bornHost\": \""), born_host, born_is_v6, int_at(after_born + FIELD(BORN_HOST_PORT)));
    to = put_number(PUT(to, "\", \"storeTimestamp\": "), long_at(after_born + FIELD(STORE_TIMESTAMP)));
    to = put_host(PUT(to, ", \"storeHost\": \""), store_host, store_is_v6, int_at(after_hosts + FIELD(STORE_HOST_PORT)));
    to = put_number(PUT(to, "\", \"reconsumeTimes\": "), int_at(after_hosts + FIELD(RECONSUME_TIMES)));
    to = put_number(PUT(to, ", \"preparedTransactionOffset\": "), long_at(after_hosts + FIELD(PREPARED_TRANSACTION_OFFSET)));
    to = put_number(PUT(to, ", \"bodyCRC\": "), int_at(p + FIELD(BODY_CRC)));
    to = put_hex(PUT(to, ", \"offsetMsgId\": \""), store_host, store_is_v6 ? 20 : 8);
    return PUT(put_hex(to, p + FIELD(PHYSICAL_OFFSET), 8), "\"");
}

static char *put_names(char *to, const Pair *pairs, int count) {
    if (!(to = put_quoted(PUT(to, ", \"uniqKey\": "), VALUE_OF(pairs, count, "UNIQ_KEY")))) return NULL;
    if (!(to = put_quoted(PUT(to, ", \"tags\": "), VALUE_OF(pairs, count, "TAGS")))) return NULL;
    if (!(to = put_quoted(PUT(to, ", \"keys\": "), VALUE_OF(pairs, count, "KEYS")))) return NULL;
    to = PUT(to, ", \"properties\": {");
    for (int i = 0; i < count; i++) {
        if (i) to = PUT(to, ", ");
        if (!(to = put_quoted(to, pairs[i].name))) return NULL;
        if (!(to = put_quoted(PUT(to, ": "), pairs[i].value))) return NULL;
    }
    return PUT(to, "}");
}

static char *put_body(char *to, Text body) {
    to = PUT(to, ", \"body\": \"");
    char *spelled = put_string(to, body);
    if (spelled) to = PUT(spelled, "\", \"bodyEncoding\": \"utf8\", \"bodyCodec\": null, \"bodyLength\": ");
    else to = PUT(put_base64(to, body), "\", \"bodyEncoding\": \"base64\", \"bodyCodec\": null, \"bodyLength\": ");
    to = put_number(to, body.length);
    to = put_number(PUT(to, ", \"storedBodyLength\": "), body.length);
    return PUT(to, "}\n");
}

static char *put_line(char *to, const uint8_t *p, const Parts *r) {
    if (r->sys_flag & SYS_FLAG_COMPRESSED) return NULL;
    Pair pairs[MOST_PAIRS];
    int count = pairs_of((Text){p + r->properties, r->properties_length}, pairs);
    if (count < 0 || !(to = put_place(to, p, r))) return NULL;
    if (!(to = put_names(put_times_and_hosts(to, p, r), pairs, count))) return NULL;
    return put_body(to, (Text){p + r->body, r->body_length});
}

/* Put the lines of records from ``*row`` on; ``ends`` gets where each ends. Stops at a row that is declined, and where
 * the longest line that a record of its size could have does not fit. */
static size_t put_lines(char *out, size_t room, const uint8_t *data, int64_t end, const int64_t *offsets, int64_t *ends,
                        size_t *row, size_t count) {
    /* The names of all fields and the longest numbers, hosts and id; a byte of a property may be in a line twice, each
     * time as six. */
    enum { NAMES = 1536, TIMES = 12 };
    char *to = out, *next;
    Parts r;
    for (; *row < count && look_within(data, end, offsets[*row], &r); ends[*row] = next - out, ++*row, to = next) {
        if ((size_t)(out + room - to) < NAMES + TIMES * (size_t)r.size) break;
        if (!(next = put_line(to, data + offsets[*row], &r))) break;
    }
    return (size_t)(to - out);
}
