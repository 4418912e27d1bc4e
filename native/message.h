/* A record as the named tuple that Python knows it as, or as a tuple of some fields of it. */

/* Bytes and numbers that come back with every record (hosts, topics, sizes) are made once. A decoder owns its own; the
 * interpreter's lock guards them, which a call that makes objects holds anyway. */
enum { KNOWN = 64 };

/* What can be asked of a record: the fields of formats.layouts.MessageRecord, in their order, and what is decoded of
 * them. formats.commit_log.FIELDS has the names. */
enum {
    TOTAL_SIZE_FIELD, MAGIC_FIELD, BODY_CRC_FIELD, QUEUE_ID_FIELD, FLAG_FIELD, QUEUE_OFFSET_FIELD, PHYSICAL_OFFSET_FIELD,
    SYS_FLAG_FIELD, BORN_TIMESTAMP_FIELD, BORN_IP_FIELD, BORN_PORT_FIELD, STORE_TIMESTAMP_FIELD, STORE_IP_FIELD,
    STORE_PORT_FIELD, RECONSUME_TIMES_FIELD, PREPARED_FIELD, BODY_LENGTH_FIELD, RAW_BODY_FIELD, RAW_TOPIC_FIELD,
    RAW_PROPERTIES_FIELD, MESSAGE_FIELDS, TOPIC_FIELD = MESSAGE_FIELDS, TAGS_FIELD, KEYS_FIELD, UNIQ_KEY_FIELD, ALL_FIELDS
};

typedef struct {
    PyObject_HEAD
    PyObject *type;     /* of what is made: a tuple with a value for each of ``fields`` */
    PyObject *other;    /* called where no message is, or a text is malformed */
    PyObject *texts[KNOWN], *words[KNOWN], *numbers[KNOWN];
    uint32_t values[KNOWN];
    uint8_t fields[ALL_FIELDS];
    int count, is_plain, asks_properties;
} Decoder;

static PyObject *known_text(Decoder *d, const uint8_t *p, uint32_t length) {
    PyObject **known = d->texts + mix(p, length) % KNOWN;
    char *text;
    Py_ssize_t size;
    if (*known && !PyBytes_AsStringAndSize(*known, &text, &size) && size == (Py_ssize_t)length && !memcmp(text, p, length))
        return Py_NewRef(*known);
    PyObject *made = PyBytes_FromStringAndSize((const char *)p, length), *old = *known;
    if (made) *known = Py_NewRef(made), Py_XDECREF(old);
    return made;
}

static PyObject *known_number(Decoder *d, uint32_t value) {
    uint32_t slot = (value ^ value >> 8) % KNOWN;
    if (d->numbers[slot] && d->values[slot] == value) return Py_NewRef(d->numbers[slot]);
    PyObject *made = PyLong_FromUnsignedLong(value), *old = d->numbers[slot];
    if (made) d->numbers[slot] = Py_NewRef(made), d->values[slot] = value, Py_XDECREF(old);
    return made;
}

static PyObject *known_int(Decoder *d, int32_t value) {
    return value < 0 ? PyLong_FromLong(value) : known_number(d, (uint32_t)value);
}

static PyObject *bytes_of(const uint8_t *p, uint32_t length) { return PyBytes_FromStringAndSize((const char *)p, length); }

/* Return a text as a string; without one None; NULL without an error where it is malformed. */
static PyObject *word_of(Decoder *d, Text text, int is_known) {
    if (!text.p) return Py_NewRef(Py_None);
    PyObject **known = d->words + mix(text.p, text.length) % KNOWN;
    Py_ssize_t size;
    const char *have = is_known && *known ? PyUnicode_AsUTF8AndSize(*known, &size) : NULL;
    if (have && size == (Py_ssize_t)text.length && !memcmp(text.p, have, text.length)) return Py_NewRef(*known);
    if (!is_utf8(text)) return NULL;
    PyObject *made = PyUnicode_FromStringAndSize((const char *)text.p, text.length), *old = *known;
    if (made && is_known) *known = Py_NewRef(made), Py_XDECREF(old);
    return made;
}

/* Return one value of the record at ``p``; NULL where a text is malformed. */
static PyObject *field_of(Decoder *d, const uint8_t *p, const Parts *r, const Named *named, int field) {
    const uint8_t *after_born = p + r->born_growth, *after_hosts = p + r->hosts_growth;
    switch (field) {
        case TOTAL_SIZE_FIELD: return known_number(d, r->size);
        case MAGIC_FIELD: return known_number(d, r->magic);
        case BODY_CRC_FIELD: return PyLong_FromLong(int_at(p + FIELD(BODY_CRC)));
        case QUEUE_ID_FIELD: return PyLong_FromLong(int_at(p + FIELD(QUEUE_ID)));
        case FLAG_FIELD: return PyLong_FromLong(int_at(p + FIELD(FLAG)));
        case QUEUE_OFFSET_FIELD: return PyLong_FromLongLong(long_at(p + FIELD(QUEUE_OFFSET)));
        case PHYSICAL_OFFSET_FIELD: return PyLong_FromLongLong(long_at(p + FIELD(PHYSICAL_OFFSET)));
        case SYS_FLAG_FIELD: return PyLong_FromLong((int32_t)r->sys_flag);
        case BORN_TIMESTAMP_FIELD: return PyLong_FromLongLong(long_at(p + FIELD(BORN_TIMESTAMP)));
        case BORN_IP_FIELD: return known_text(d, p + FIELD(BORN_HOST_IP), r->sys_flag & SYS_FLAG_BORN_HOST_V6 ? 16 : 4);
        case BORN_PORT_FIELD: return known_int(d, int_at(after_born + FIELD(BORN_HOST_PORT)));
        case STORE_TIMESTAMP_FIELD: return PyLong_FromLongLong(long_at(after_born + FIELD(STORE_TIMESTAMP)));
        case STORE_IP_FIELD: return known_text(d, after_born + FIELD(STORE_HOST_IP), r->sys_flag & SYS_FLAG_STORE_HOST_V6 ? 16 : 4);
        case STORE_PORT_FIELD: return known_int(d, int_at(after_hosts + FIELD(STORE_HOST_PORT)));
        case RECONSUME_TIMES_FIELD: return PyLong_FromLong(int_at(after_hosts + FIELD(RECONSUME_TIMES)));
        case PREPARED_FIELD: return PyLong_FromLongLong(long_at(after_hosts + FIELD(PREPARED_TRANSACTION_OFFSET)));
        case BODY_LENGTH_FIELD: return known_number(d, r->body_length);
        case RAW_BODY_FIELD: return bytes_of(p + r->body, r->body_length);
        case RAW_TOPIC_FIELD: return known_text(d, p + r->topic, r->topic_length);
        case RAW_PROPERTIES_FIELD: return bytes_of(p + r->properties, r->properties_length);
        case TOPIC_FIELD: return word_of(d, (Text){p + r->topic, r->topic_length}, 1);
        case TAGS_FIELD: return word_of(d, named->tags, 1);
        case KEYS_FIELD: return word_of(d, named->keys, 0);
        default: return word_of(d, named->uniq_key, 0);
    }
}

/* Return what the decoder makes of the record at ``p``; NULL where a text is malformed. */
static PyObject *made_of(Decoder *d, const uint8_t *p, const Parts *r) {
    PyObject *made = d->is_plain ? PyTuple_New(d->count) : PyType_GenericAlloc((PyTypeObject *)d->type, d->count);
    Named named;
    if (d->asks_properties) find_named((Text){p + r->properties, r->properties_length}, &named);
    for (int i = 0; made && i < d->count; i++) {
        PyObject *value = field_of(d, p, r, &named, d->fields[i]);
        if (!value || PyTuple_SetItem(made, i, value)) Py_CLEAR(made);
    }
    return made;
}

/* Return a number of any size as the nearest one that fits, NULL and None as ``otherwise``. */
static int64_t nearest(PyObject *given, int64_t otherwise) {
    if (!given || given == Py_None) return otherwise;
    int over;
    long long value = PyLong_AsLongLongAndOverflow(given, &over);
    return over > 0 ? INT64_MAX : over < 0 ? INT64_MIN : value;
}

/* decode(data, file_offset=0, end=None), as formats.commit_log.decode_record_in_python */
static PyObject *decode_one(PyObject *self, PyObject *args, PyObject *named) {
    static char *words[] = {"data", "file_offset", "end", NULL};
    Decoder *d = (Decoder *)self;
    PyObject *given, *at_given = NULL, *end_given = NULL;
    Py_buffer data;
    if (!named && PyTuple_Size(args) == 1) given = PyTuple_GetItem(args, 0);
    else if (!PyArg_ParseTupleAndKeywords(args, named, "O|OO", words, &given, &at_given, &end_given)) return NULL;
    int64_t at = nearest(at_given, 0), end = nearest(end_given, INT64_MAX);
    if (PyErr_Occurred() || PyObject_GetBuffer(given, &data, PyBUF_SIMPLE)) return NULL;
    if (end > data.len) end = data.len;
    Parts r;
    PyObject *found = look_within(data.buf, end, at, &r) ? made_of(d, (const uint8_t *)data.buf + at, &r) : NULL;
    PyBuffer_Release(&data);
    return found || PyErr_Occurred() ? found : PyObject_CallFunction(d->other, "OLL", given, (long long)at, (long long)end);
}

static void drop_decoder(PyObject *self) {
    Decoder *d = (Decoder *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(d->type), Py_XDECREF(d->other);
    for (int i = 0; i < KNOWN; i++) Py_XDECREF(d->texts[i]), Py_XDECREF(d->words[i]), Py_XDECREF(d->numbers[i]);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot decoder_slots[] = {{Py_tp_call, decode_one}, {Py_tp_dealloc, drop_decoder}, {0, NULL}};
static PyType_Spec decoder_spec = {
    "rmqtool._native.Decoder", sizeof(Decoder), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, decoder_slots};

/* Return a new object of a type of this module that is made at its first use. */
static PyObject *new_object(PyType_Spec *spec, size_t size) {
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return NULL;
    PyObject *made = PyObject_Malloc(size);
    if (!made) { Py_DECREF(type); return PyErr_NoMemory(); }
    memset(made, 0, size);
    PyObject_Init(made, (PyTypeObject *)type); /* an object holds its type */
    Py_DECREF(type);
    return made;
}

/* Return a decoder of ``type`` that makes tuples of some fields, by their numbers. */
static PyObject *new_decoder(PyType_Spec *spec, PyObject *type, PyObject *fields, PyObject *other) {
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type) || !PyTuple_Check(fields) ||
        PyTuple_Size(fields) > ALL_FIELDS)
        return PyErr_Format(PyExc_TypeError, "a type of tuple and the numbers of its fields");
    Decoder *d = (Decoder *)new_object(spec, sizeof *d);
    if (!d) return NULL;
    d->type = Py_NewRef(type), d->other = Py_NewRef(other), d->is_plain = type == (PyObject *)&PyTuple_Type;
    for (d->count = 0; d->count < PyTuple_Size(fields); d->count++) {
        long field = PyLong_AsLong(PyTuple_GetItem(fields, d->count));
        if (field < 0 || field >= ALL_FIELDS) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a record has no such field");
            Py_DECREF(d);
            return NULL;
        }
        d->fields[d->count] = (uint8_t)field, d->asks_properties |= field >= TAGS_FIELD;
    }
    return (PyObject *)d;
}

/* decoder(type, fields, other) -> callable */
static PyObject *py_decoder(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3) return PyErr_Format(PyExc_TypeError, "decoder(type of tuple, fields, other)");
    return new_decoder(&decoder_spec, args[0], args[1], args[2]);
}

/* decode(data, offsets): the record at each, in a list */
static PyObject *decode_many(PyObject *self, PyObject *args, PyObject *named) {
    Decoder *d = (Decoder *)self;
    PyObject *given[2];
    if (named || !PyArg_UnpackTuple(args, "decode", 2, 2, given, given + 1)) return PyErr_Format(PyExc_TypeError, "decode(data, offsets)");
    Call c = begin(given, 2, 2, "decode(data, offsets)");
    Array data = take_bytes(&c), offsets = take_longs(&c);
    PyObject *found = is_good(&c) ? PyList_New((Py_ssize_t)offsets.count) : NULL;
    for (size_t i = 0; found && i < offsets.count; i++) {
        int64_t at = ((const int64_t *)offsets.items)[i];
        Parts r;
        PyObject *one = look_within(data.items, (int64_t)data.count, at, &r) ? made_of(d, (const uint8_t *)data.items + at, &r) : NULL;
        if (!one && !PyErr_Occurred()) one = PyObject_CallFunction(d->other, "OL", given[0], (long long)at);
        if (!one || PyList_SetItem(found, (Py_ssize_t)i, one)) Py_CLEAR(found);
    }
    return finish(&c, found);
}

static PyType_Slot decoder_of_many_slots[] = {{Py_tp_call, decode_many}, {Py_tp_dealloc, drop_decoder}, {0, NULL}};
static PyType_Spec decoder_of_many_spec = {
    "rmqtool._native.DecoderOfMany", sizeof(Decoder), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, decoder_of_many_slots};

/* decoder_of_many(type, fields, other) -> callable */
static PyObject *py_decoder_of_many(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3) return PyErr_Format(PyExc_TypeError, "decoder_of_many(type of tuple, fields, other)");
    return new_decoder(&decoder_of_many_spec, args[0], args[1], args[2]);
}

/* The text of properties, by their names in order: called with a mapping. What is no dict of texts, or is long, ``other``
 * spells. */
typedef struct { PyObject_HEAD PyObject *names, *other; int is_terminated; } TextMaker;

static PyObject *make_text(PyObject *self, PyObject *args, PyObject *named) {
    TextMaker *maker = (TextMaker *)self;
    PyObject *properties = !named && PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
    char text[2048];
    size_t used = 0;
    Py_ssize_t names = PyTuple_Size(maker->names);
    if (!properties || !PyDict_CheckExact(properties)) return PyObject_Call(maker->other, args, named);
    for (Py_ssize_t i = 0; i < names; i++) {
        PyObject *name = PyTuple_GetItem(maker->names, i), *value = PyDict_GetItemWithError(properties, name);
        Py_ssize_t name_size, size = 0;
        const char *n = PyUnicode_AsUTF8AndSize(name, &name_size);
        const char *v = n && value && PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, &size) : NULL;
        if (!v || used + (size_t)name_size + (size_t)size + 2 > sizeof text) {
            PyErr_Clear(); /* a lone surrogate has no UTF-8: ``other`` knows what Java makes of it */
            return PyObject_Call(maker->other, args, NULL);
        }
        memcpy(text + used, n, (size_t)name_size), used += (size_t)name_size, text[used++] = NAME_VALUE_SEPARATOR[0];
        memcpy(text + used, v, (size_t)size), used += (size_t)size, text[used++] = PROPERTY_SEPARATOR[0];
    }
    return PyBytes_FromStringAndSize(text, (Py_ssize_t)(used && !maker->is_terminated ? used - 1 : used));
}

static void drop_maker(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((TextMaker *)self)->names), Py_XDECREF(((TextMaker *)self)->other);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot maker_slots[] = {{Py_tp_call, make_text}, {Py_tp_dealloc, drop_maker}, {0, NULL}};
static PyType_Spec maker_spec = {
    "rmqtool._native.TextMaker", sizeof(TextMaker), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, maker_slots};

/* text_maker(names, is_terminated, other) -> callable */
static PyObject *py_text_maker(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyTuple_Check(args[0])) return PyErr_Format(PyExc_TypeError, "text_maker(tuple of names, is_terminated, other)");
    for (Py_ssize_t i = 0; i < PyTuple_Size(args[0]); i++)
        if (!PyUnicode_Check(PyTuple_GetItem(args[0], i))) return PyErr_Format(PyExc_TypeError, "a name is no text");
    TextMaker *maker = (TextMaker *)new_object(&maker_spec, sizeof *maker);
    if (maker) maker->names = Py_NewRef(args[0]), maker->other = Py_NewRef(args[2]), maker->is_terminated = args[1] == Py_True;
    return (PyObject *)maker;
}
