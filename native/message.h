/* A record as the named tuple that Python knows it as. */

/* Bytes and numbers that come back with every record (hosts, topics, sizes) are made once. A decoder owns its own; the
 * interpreter's lock guards them, which a call that makes objects holds anyway. */
enum { KNOWN = 64, MESSAGE_FIELDS = 20 };

typedef struct {
    PyObject_HEAD
    PyObject *type;     /* of the messages: a tuple of MESSAGE_FIELDS fields */
    PyObject *other;    /* called where no message is */
    PyObject *texts[KNOWN], *numbers[KNOWN];
    uint32_t values[KNOWN];
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

/* Put a new value into a tuple that is being made. */
static inline int give(PyObject *tuple, Py_ssize_t at, PyObject *value) { return value && !PyTuple_SetItem(tuple, at, value); }

/* Return the message that the record at ``p`` is, in the order of formats.layouts.MessageRecord. */
static PyObject *message_of(Decoder *d, const uint8_t *p, const Parts *r) {
    PyObject *m = PyType_GenericAlloc((PyTypeObject *)d->type, MESSAGE_FIELDS);
    if (!m) return NULL;
    uint32_t born_ip = r->sys_flag & SYS_FLAG_BORN_HOST_V6 ? 16 : 4, store_ip = r->sys_flag & SYS_FLAG_STORE_HOST_V6 ? 16 : 4;
    const uint8_t *after_born = p + r->born_growth, *after_hosts = p + r->hosts_growth;
    if (give(m, 0, known_number(d, r->size)) && give(m, 1, known_number(d, r->magic)) &&
        give(m, 2, PyLong_FromLong(int_at(p + FIELD(BODY_CRC)))) &&
        give(m, 3, PyLong_FromLong(int_at(p + FIELD(QUEUE_ID)))) &&
        give(m, 4, PyLong_FromLong(int_at(p + FIELD(FLAG)))) &&
        give(m, 5, PyLong_FromLongLong(long_at(p + FIELD(QUEUE_OFFSET)))) &&
        give(m, 6, PyLong_FromLongLong(long_at(p + FIELD(PHYSICAL_OFFSET)))) &&
        give(m, 7, PyLong_FromLong((int32_t)r->sys_flag)) &&
        give(m, 8, PyLong_FromLongLong(long_at(p + FIELD(BORN_TIMESTAMP)))) &&
        give(m, 9, known_text(d, p + FIELD(BORN_HOST_IP), born_ip)) &&
        give(m, 10, known_int(d, int_at(after_born + FIELD(BORN_HOST_PORT)))) &&
        give(m, 11, PyLong_FromLongLong(long_at(after_born + FIELD(STORE_TIMESTAMP)))) &&
        give(m, 12, known_text(d, after_born + FIELD(STORE_HOST_IP), store_ip)) &&
        give(m, 13, known_int(d, int_at(after_hosts + FIELD(STORE_HOST_PORT)))) &&
        give(m, 14, PyLong_FromLong(int_at(after_hosts + FIELD(RECONSUME_TIMES)))) &&
        give(m, 15, PyLong_FromLongLong(long_at(after_hosts + FIELD(PREPARED_TRANSACTION_OFFSET)))) &&
        give(m, 16, known_number(d, r->body_length)) &&
        give(m, 17, bytes_of(p + r->body, r->body_length)) &&
        give(m, 18, known_text(d, p + r->topic, r->topic_length)) &&
        give(m, 19, bytes_of(p + r->properties, r->properties_length)))
        return m;
    Py_DECREF(m);
    return NULL;
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
    PyObject *found = look_within(data.buf, end, at, &r) ? message_of(d, (const uint8_t *)data.buf + at, &r) : NULL;
    PyBuffer_Release(&data);
    return found || PyErr_Occurred() ? found : PyObject_CallFunction(d->other, "OLL", given, (long long)at, (long long)end);
}

static void drop_decoder(PyObject *self) {
    Decoder *d = (Decoder *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(d->type), Py_XDECREF(d->other);
    for (int i = 0; i < KNOWN; i++) Py_XDECREF(d->texts[i]), Py_XDECREF(d->numbers[i]);
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

/* decoder(type, other) -> callable */
static PyObject *py_decoder(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type))
        return PyErr_Format(PyExc_TypeError, "decoder(type of tuple, other)");
    Decoder *d = (Decoder *)new_object(&decoder_spec, sizeof *d);
    if (d) d->type = Py_NewRef(args[0]), d->other = Py_NewRef(args[1]);
    return (PyObject *)d;
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
