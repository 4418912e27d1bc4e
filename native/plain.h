/* The record of a plain message, from its properties to its place, in one call: the put of a producer that sends one
 * message after the other. What messages of one topic with the same property names have in common is a Kind. */

enum { MOST_NAMES = 64 };

typedef struct {
    PyObject *names, *values, *topic, *ip; /* ``pairs``, ``common`` and ``topic_text`` point into them */
    Pair pairs[MOST_NAMES];
    Content common;
    Text topic_text;
    uint32_t most;
    Py_ssize_t count, key_at;
    int is_terminated;
} Kind;

static const char kind_name[] = "rmqtool.kind";

static void drop_kind(PyObject *capsule) {
    Kind *k = PyCapsule_GetPointer(capsule, kind_name);
    if (!k) return;
    Py_XDECREF(k->names), Py_XDECREF(k->values), Py_XDECREF(k->topic), Py_XDECREF(k->ip);
    PyMem_Free(k);
}

/* Take a string as UTF-8, which lives as long as the string; return 0 where it is none, or has no UTF-8. */
static int take_utf8(PyObject *given, Text *text) {
    Py_ssize_t length;
    const char *p = given && PyUnicode_Check(given) ? PyUnicode_AsUTF8AndSize(given, &length) : NULL;
    if (!p || length > INT32_MAX) return 0;
    *text = (Text){(const uint8_t *)p, (uint32_t)length};
    return 1;
}

static int take_pairs(Kind *k) {
    if (!PyTuple_Check(k->names) || !PyTuple_Check(k->values)) return 0;
    k->count = PyTuple_Size(k->names);
    if (k->count > MOST_NAMES || PyTuple_Size(k->values) != k->count || k->key_at < -1 || k->key_at >= k->count) return 0;
    for (Py_ssize_t i = 0; i < k->count; i++) {
        PyObject *value = PyTuple_GetItem(k->values, i);
        if (!take_utf8(PyTuple_GetItem(k->names, i), &k->pairs[i].name)) return 0;
        if (value != Py_None && !take_utf8(value, &k->pairs[i].value)) return 0;
    }
    return 1;
}

/* record_kind(magic, topic, store_ip, store_port, names, values, key_at, is_terminated, most) -> capsule */
static PyObject *py_record_kind(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 9, "record_kind(magic, topic, store_ip, store_port, names, values, key_at, is_terminated, most)");
    Kind k = {0};
    int64_t magic = take_long(&c);
    k.topic_text = take_text(&c);
    Host host = {take_text(&c), take_int(&c)};
    k.names = take(&c), k.values = take(&c), k.key_at = take_int(&c), k.is_terminated = take_truth(&c);
    k.most = (uint32_t)take_size(&c, INT32_MAX);
    if (!need(&c, magic == MESSAGE_MAGIC_V1 || magic == MESSAGE_MAGIC_V2, "no magic of a message") ||
        !need(&c, is_ip(host.ip), "an address has 4 or 16 bytes") || !need(&c, k.topic_text.length <= MOST_SHORT + 2, "the topic is too long"))
        return finish(&c, NULL);
    if (!take_pairs(&k)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a tuple of names and one of their values, None for those of a message");
        return finish(&c, NULL);
    }
    k.common = (Content){.magic = (uint32_t)magic, .born_host = host, .store_host = host};
    k.topic = Py_NewRef(args[1]), k.ip = Py_NewRef(args[2]), k.names = Py_NewRef(k.names), k.values = Py_NewRef(k.values);
    Kind *kept = PyMem_Malloc(sizeof *kept);
    if (kept) *kept = k;
    PyObject *made = kept ? PyCapsule_New(kept, kind_name, drop_kind) : PyErr_NoMemory();
    return finish(&c, made);
}

/* Return the record of what a call gave; None where ``formats`` has to make it, or refuse it. The caller may change it. */
static PyObject *plain_record(const Kind *k, Content *c, const Pair *pairs) {
    Properties text = {pairs, (size_t)k->count, k->is_terminated};
    uint32_t size = size_of_plain(c, k->topic_text, &text, k->most);
    if (!size) return Py_NewRef(Py_None);
    PyObject *record = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (record) put_plain((uint8_t *)PyByteArray_AsString(record), c, k->topic_text, &text, size);
    return record;
}

/* Take an address and its port, if they are given; return 0 where they are none. */
static int take_host(PyObject *given, Host *host) {
    if (given == Py_None) return 1;
    char *ip;
    Py_ssize_t length;
    if (!PyTuple_Check(given) || PyTuple_Size(given) != 2 || PyBytes_AsStringAndSize(PyTuple_GetItem(given, 0), &ip, &length)) return 0;
    long port = PyLong_AsLong(PyTuple_GetItem(given, 1));
    *host = (Host){{(const uint8_t *)ip, (uint32_t)length}, (int32_t)port};
    return (length == SHORT_IP || length == LONG_IP) && port == (int32_t)port && !PyErr_Occurred();
}

/* plain_record(kind, properties, uniq_key, body, flag, queue_id, queue_offset, physical_offset, born, stored, born_host) */
static PyObject *py_plain_record(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 11, "plain_record(kind, properties, uniq_key, body, flag, queue_id, queue_offset, physical_offset, born, stored, born_host)");
    const Kind *k = c.is_bad ? NULL : PyCapsule_GetPointer(take(&c), kind_name);
    if (!k) return NULL;
    PyObject *properties = take(&c), *key = take(&c), *values[MOST_NAMES], *record = NULL;
    Content content = k->common;
    Pair pairs[MOST_NAMES];
    content.body = take_text(&c), content.flag = take_int(&c), content.queue_id = take_int(&c);
    content.queue_offset = take_long(&c), content.physical_offset = take_long(&c);
    content.born_timestamp = take_long(&c), content.store_timestamp = take_long(&c);
    int is_plain = is_good(&c) && PyDict_CheckExact(properties) && content.queue_id >= 0 && take_host(take(&c), &content.born_host);
    Py_ssize_t held = 0;
    for (; is_plain && held < k->count; held++) {
        pairs[held] = k->pairs[held];
        values[held] = NULL;
        if (pairs[held].value.p) continue;
        /* Held until the text is copied: to look for the next name may run a program that changes the mapping. */
        values[held] = held == k->key_at ? key : PyDict_GetItemWithError(properties, PyTuple_GetItem(k->names, held));
        Py_XINCREF(values[held]);
        is_plain = take_utf8(values[held], &pairs[held].value);
    }
    if (is_plain) record = plain_record(k, &content, pairs);
    else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_OverflowError) || PyErr_ExceptionMatches(PyExc_ValueError) ||
             PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear(), record = Py_NewRef(Py_None);
    while (held) Py_XDECREF(values[--held]);
    return finish(&c, record);
}
