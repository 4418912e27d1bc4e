/* The frame of an answer: what is the same in all answers of its kind, and between it the values of this one. */

enum { MOST_VALUES = 16, FRAME_LENGTH_SIZE = 4 };

/* A number by its digits, or a text that goes between quotes. */
typedef struct { Text text; int is_quoted; char digits[20]; } Value;

typedef struct { Text parts[MOST_VALUES + 1], body; Value values[MOST_VALUES]; size_t count; } Answer;

static void set_number(Value *v, int64_t number) {
    char *end = put_number(v->digits, number);
    v->text = (Text){(const uint8_t *)v->digits, (uint32_t)(end - v->digits)}, v->is_quoted = 0;
}

/* Take a text; return 0 where it is not written in JSON as it is. */
static int set_text(Value *v, Text text) {
    for (uint32_t i = 0; i < text.length; i++)
        if (json_kind[text.p[i]] != PLAIN) return 0;
    v->text = text, v->is_quoted = 1;
    return 1;
}

/* Return the size of the header. */
static uint64_t size_of_header(const Answer *a) {
    uint64_t size = a->parts[a->count].length;
    for (size_t i = 0; i < a->count; i++) size += (uint64_t)a->parts[i].length + a->values[i].text.length + 2 * (uint64_t)a->values[i].is_quoted;
    return size;
}

static uint8_t *put_piece(uint8_t *to, Text text) {
    if (text.length) memcpy(to, text.p, text.length);
    return to + text.length;
}

/* Put the frame, whose header has that size; return its end. */
static uint8_t *put_answer(uint8_t *to, const Answer *a, uint32_t header) {
    put32(to, FRAME_LENGTH_SIZE + header + a->body.length), put32(to + 4, header);
    to += 8;
    for (size_t i = 0; i < a->count; i++) {
        to = put_piece(to, a->parts[i]);
        if (a->values[i].is_quoted) *to++ = '"';
        to = put_piece(to, a->values[i].text);
        if (a->values[i].is_quoted) *to++ = '"';
    }
    return put_piece(put_piece(to, a->parts[a->count]), a->body);
}
