/* A plain pull, as Java's push consumers write it: without a subscription, which its group has told, and without fields
 * of hooks. What is not like that is declined, and Python reads the frame. */

enum { PULL_MESSAGE = 11, LITE_PULL_MESSAGE = 361, PULL_COMMITS = 1, PULL_MAY_WAIT = 2 };
/* Those up to PULL_SUB_VERSION are needed. Of the others PULL_MOST_BYTES is a number, and PULL_TYPE is TAG; Python gets none. */
enum { PULL_GROUP, PULL_TOPIC, PULL_QUEUE_ID, PULL_OFFSET, PULL_MOST, PULL_SYS_FLAG, PULL_COMMIT, PULL_SUSPEND, PULL_SUB_VERSION,
       PULL_MOST_BYTES, PULL_TYPE, PULL_BROKER, PULL_FIELDS };

typedef struct { Text group, topic; int64_t numbers[PULL_FIELDS]; } PullFields;

/* Read ``extFields``; return 0 where they are not plain. */
static int read_pull_fields(Reader *r, PullFields *pull) {
    static const char *const names[PULL_FIELDS] = {"consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag",
        "commitOffset", "suspendTimeoutMillis", "subVersion", "maxMsgBytes", "expressionType", "bname"};
    Text fields[PULL_FIELDS] = {{NULL, 0}};
    int escapes;
    if (!take_mark(r, '{')) return 0;
    do {
        Text name, value;
        if (!take_string(r, &name, &escapes) || escapes || !take_mark(r, ':') || !take_string(r, &value, &escapes) || escapes) return 0;
        int which = 0;
        while (which < PULL_FIELDS && !is_word(name, names[which], (uint32_t)strlen(names[which]))) which++;
        if (which == PULL_FIELDS || fields[which].p) return 0;
        fields[which] = value;
    } while (take_mark(r, ','));
    for (int i = PULL_QUEUE_ID; i <= PULL_MOST_BYTES; i++) {
        int is_long = i == PULL_OFFSET || i >= PULL_COMMIT;
        int is_there = fields[i].p || i < PULL_MOST_BYTES;
        if (is_there && !plain_number(fields[i], is_long && i < PULL_MOST_BYTES ? LONG_DIGITS : INT_DIGITS, pull->numbers + i)) return 0;
    }
    pull->group = fields[PULL_GROUP], pull->topic = fields[PULL_TOPIC];
    return take_mark(r, '}') && pull->group.length && pull->topic.length && (!fields[PULL_TYPE].p || IS(fields[PULL_TYPE], "TAG")) &&
           !(pull->numbers[PULL_SYS_FLAG] & ~(int64_t)(PULL_COMMITS | PULL_MAY_WAIT));
}
