/* Plain requests as rows, what Python needs of each; and the frames of answers. */

/* Return properties as a dict: those with a name and a value, as formats.properties.read_properties. */
static PyObject *dict_of(Text text) {
    PyObject *found = PyDict_New();
    const uint8_t *p = text.p, *end = p + text.length;
    int is_good = found != NULL;
    while (is_good && p < end) {
        const uint8_t *stop = memchr(p, PROPERTY_SEPARATOR[0], (size_t)(end - p));
        if (!stop) stop = end;
        const uint8_t *mid = memchr(p, NAME_VALUE_SEPARATOR[0], (size_t)(stop - p));
        if (mid && mid > p && mid + 1 < stop) {
            PyObject *name = PyUnicode_FromStringAndSize((const char *)p, mid - p);
            PyObject *value = PyUnicode_FromStringAndSize((const char *)mid + 1, stop - mid - 1);
            is_good = name && value && !PyDict_SetItem(found, name, value);
            Py_XDECREF(name), Py_XDECREF(value);
        }
        p = stop + 1;
    }
    if (!is_good) Py_CLEAR(found);
    return found;
}

/* Return the row of a request; NULL without an error where its properties have unusual escapes. */
static PyObject *send_row(const PlainRequest *q, size_t at) {
    const SendFields *s = &q->send;
    uint8_t small[1024], *to = small;
    Text text = s->properties;
    if (s->escapes) {
        if (text.length > sizeof small && !(to = PyMem_Malloc(text.length))) return PyErr_NoMemory();
        int64_t length = unescape(text, to);
        text = (Text){to, length < 0 ? 0 : (uint32_t)length};
        if (length < 0) text.p = NULL;
    }
    PyObject *properties = text.p || !s->properties.p ? dict_of(text) : NULL;
    if (to != small) PyMem_Free(to);
    if (!properties) return NULL;
    return Py_BuildValue("nnLs#LLLNy#", (Py_ssize_t)at, (Py_ssize_t)(at + q->size), (long long)q->opaque, s->topic.p, (Py_ssize_t)s->topic.length,
                         (long long)s->queue_id, (long long)s->born, (long long)s->flag, properties, q->body.p, (Py_ssize_t)q->body.length);
}

/* Return the row of a pull. */
static PyObject *pull_row(const PlainRequest *q, size_t at) {
    const PullFields *pull = &q->pull;
    const int64_t *numbers = pull->numbers;
    return Py_BuildValue("nnLs#s#LLLLL", (Py_ssize_t)at, (Py_ssize_t)(at + q->size), (long long)q->opaque, pull->group.p,
                         (Py_ssize_t)pull->group.length, pull->topic.p, (Py_ssize_t)pull->topic.length, (long long)numbers[PULL_QUEUE_ID],
                         (long long)numbers[PULL_OFFSET], (long long)numbers[PULL_MOST], (long long)numbers[PULL_SYS_FLAG],
                         (long long)numbers[PULL_COMMIT]);
}

/* plain_requests(data, at, most_frame, most_header) -> rows, the place after them */
static PyObject *py_plain_requests(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 4, "plain_requests(data, at, most_frame, most_header)");
    Array data = take_bytes(&c);
    size_t at = take_size(&c, data.count), most_frame = take_size(&c, INT32_MAX), most_header = take_size(&c, INT32_MAX);
    PyObject *rows = is_good(&c) ? PyList_New(0) : NULL;
    PlainRequest q;
    while (rows && take_request((const uint8_t *)data.items + at, data.count - at, most_frame, most_header, &q)) {
        PyObject *row = is_pull(&q) ? pull_row(&q, at) : send_row(&q, at);
        if (row ? PyList_Append(rows, row) : PyErr_Occurred() != NULL) Py_CLEAR(rows);
        Py_XDECREF(row);
        if (!row) break;
        at += q.size;
    }
    return finish(&c, rows ? Py_BuildValue("Nn", rows, (Py_ssize_t)at) : NULL);
}

/* answer_frame(parts, values, body, most_header, most_frame) -> bytes, None where Python has to write it */
static PyObject *py_answer_frame(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 5, "answer_frame(parts, values, body, most_header, most_frame)");
    PyObject *parts = take(&c), *values = take(&c);
    Answer a;
    a.body = take_text(&c);
    size_t most_header = take_size(&c, INT32_MAX), most_frame = take_size(&c, INT32_MAX);
    if (!is_good(&c)) return NULL;
    a.count = PyTuple_Check(values) ? (size_t)PyTuple_Size(values) : MOST_VALUES + 1;
    if (!need(&c, a.count <= MOST_VALUES && PyTuple_Check(parts) && PyTuple_Size(parts) == (Py_ssize_t)a.count + 1, "a part before and after each value"))
        return NULL;
    int is_plain = 1;
    for (size_t i = 0; i <= a.count; i++) {
        char *p;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(parts, (Py_ssize_t)i), &p, &length)) return NULL;
        a.parts[i] = (Text){(const uint8_t *)p, (uint32_t)length};
        if (!need(&c, length <= INT32_MAX, "a part is too long")) return NULL;
        if (i == a.count) break;
        PyObject *value = PyTuple_GetItem(values, (Py_ssize_t)i);
        Text text;
        if (PyLong_Check(value)) {
            long long number = PyLong_AsLongLong(value);
            if (number == -1 && PyErr_Occurred()) return NULL;
            set_number(a.values + i, number);
        } else if (!take_utf8(value, &text) || !set_text(a.values + i, text)) { is_plain = 0; break; }
    }
    PyErr_Clear();
    uint64_t header = is_plain ? size_of_header(&a) : 0, size = FRAME_HEAD + header + a.body.length;
    if (!is_plain || header > most_header || size > most_frame) return Py_NewRef(Py_None);
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (frame) put_answer((uint8_t *)PyBytes_AsString(frame), &a, (uint32_t)header);
    return frame;
}
