/* A request to store one plain message, as Java's and Go's clients write it: a JSON header whose fields are texts, without
 * flags, retries or batch. What is not like that is declined, and Python reads the frame. */

enum { FRAME_HEAD = 8, SEND_MESSAGE = 10, SEND_MESSAGE_V2 = 310, MOST_FIELDS = 64 };
enum { SEND_GROUP, SEND_TOPIC, SEND_MODEL, SEND_MODEL_QUEUES, SEND_QUEUE_ID, SEND_SYS_FLAG, SEND_BORN, SEND_FLAG, SEND_PROPERTIES,
       SEND_TIMES, SEND_UNIT_MODE, SEND_MOST_TIMES, SEND_BATCH, SEND_BROKER, SEND_FIELDS };

typedef struct {
    int64_t queue_id, born, flag;
    Text topic, properties;
    int escapes;                    /* whether ``properties`` has some */
} SendFields;

/* Return which field a name is: one letter in the short form of the header; -1: none. */
static int send_field(Text name, int is_short) {
    static const char *const names[SEND_FIELDS] = {
        "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag", "properties",
        "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname"};
    if (is_short) return name.length == 1 && name.p[0] >= 'a' && name.p[0] < 'a' + SEND_FIELDS ? name.p[0] - 'a' : -1;
    for (int i = 0; i < SEND_FIELDS; i++)
        if (is_word(name, names[i], (uint32_t)strlen(names[i]))) return i;
    return -1;
}

/* Take a number of at most ``most`` digits; return 0 where it is spelled in another way. */
static int plain_number(Text text, uint32_t most, int64_t *value) {
    int64_t found = 0;
    for (uint32_t i = 0; i < text.length; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || text.length > most) return 0;
        found = found * 10 + (text.p[i] - '0');
    }
    *value = found;
    return text.length > 0;
}

static int is_false(Text text) { return !text.p || IS(text, "false"); }

/* Read ``extFields``; return 0 where they are not plain. */
static int read_send_fields(Reader *r, int is_short, SendFields *s) {
    Text fields[SEND_FIELDS] = {{NULL, 0}};
    int count = 0, escapes;
    s->escapes = 0;
    if (!take_mark(r, '{')) return 0;
    do {
        Text name, value;
        if (!take_string(r, &name, &escapes) || escapes || !take_mark(r, ':') || !take_string(r, &value, &escapes)) return 0;
        int field = send_field(name, is_short);
        /* In the short form long names count too. */
        if (++count > MOST_FIELDS || (is_short && field < 0 && send_field(name, 0) >= 0)) return 0;
        if (field == SEND_PROPERTIES) s->escapes = escapes;
        else if (escapes) return 0;
        if (field >= 0) fields[field] = value;
    } while (take_mark(r, ','));
    int64_t number;
    s->topic = fields[SEND_TOPIC], s->properties = fields[SEND_PROPERTIES];
    return take_mark(r, '}') && fields[SEND_GROUP].p && s->topic.length && fields[SEND_MODEL].p &&
           plain_number(fields[SEND_MODEL_QUEUES], INT_DIGITS, &number) && plain_number(fields[SEND_QUEUE_ID], INT_DIGITS, &s->queue_id) &&
           plain_number(fields[SEND_SYS_FLAG], INT_DIGITS, &number) && !number && plain_number(fields[SEND_BORN], LONG_DIGITS, &s->born) &&
           plain_number(fields[SEND_FLAG], INT_DIGITS, &s->flag) && (!fields[SEND_TIMES].p || IS(fields[SEND_TIMES], "0")) &&
           (!fields[SEND_MOST_TIMES].p || plain_number(fields[SEND_MOST_TIMES], INT_DIGITS, &number)) &&
           (is_false(fields[SEND_UNIT_MODE]) || IS(fields[SEND_UNIT_MODE], "true")) && is_false(fields[SEND_BATCH]);
}
