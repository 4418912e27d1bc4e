/* A frame with a plain request: to store a message, or to read some. */

typedef struct {
    size_t size; /* of the frame */
    int64_t code, opaque;
    Text body;
    SendFields send;
    PullFields pull;
} PlainRequest;

static int is_pull(const PlainRequest *q) { return q->code == PULL_MESSAGE || q->code == LITE_PULL_MESSAGE; }

/* Read the fields that requests of a code have; return 0 where they are not plain. */
static int read_plain_fields(Reader *r, PlainRequest *q) {
    if (is_pull(q)) return read_pull_fields(r, &q->pull);
    return (q->code == SEND_MESSAGE || q->code == SEND_MESSAGE_V2) && read_send_fields(r, q->code == SEND_MESSAGE_V2, &q->send);
}

/* Read the header; return 0 where it is not that of such a request. */
static int read_plain_header(Reader *r, PlainRequest *q) {
    static const char *const names[] = {"code", "opaque", "flag", "version"};
    int64_t numbers[] = {0, 0, 0, 0};
    int has_fields = 0, members = 0, escapes;
    if (!take_mark(r, '{')) return 0;
    do {
        Text name, value;
        if (++members > MOST_OTHER_MEMBERS || !take_string(r, &name, &escapes) || escapes || !take_mark(r, ':')) return 0;
        int which = 0;
        while (which < 4 && !is_word(name, names[which], (uint32_t)strlen(names[which]))) which++;
        if (which < 4 ? !take_number(r, numbers + which) : !IS(name, "extFields") && (!take_string(r, &value, &escapes) || escapes)) return 0;
        if (!IS(name, "extFields")) continue;
        /* The code says which names the fields have. */
        q->code = numbers[0];
        if (has_fields++ || !read_plain_fields(r, q)) return 0;
    } while (take_mark(r, ','));
    q->opaque = numbers[1];
    return take_mark(r, '}') && r->p == r->end && has_fields && !numbers[2] && numbers[0] == q->code;
}

/* Take the frame at ``p``, of which ``left`` bytes are there; return 0 where it is no such request, or not complete. */
static int take_request(const uint8_t *p, size_t left, size_t most_frame, size_t most_header, PlainRequest *q) {
    if (left < FRAME_HEAD) return 0;
    uint32_t length = be32(p), header = be32(p + 4);
    if (length < 4 || length > left - 4) return 0; /* before the sum, which may not fit into 32 bits */
    q->size = (size_t)length + 4;
    if (q->size > most_frame) return 0;
    if (header > most_header || header > length - 4) return 0; /* another kind of header is in the top byte */
    Reader r = {p + FRAME_HEAD, p + FRAME_HEAD + header};
    q->body = (Text){r.end, length - 4 - header};
    return read_plain_header(&r, q);
}
