/* The arguments of a call: buffers that are held until it returns, and whole numbers.
 *
 * Each argument is taken with a function that says what it has to be. After the first that is not, the others give
 * zeros, a Python error is set, and is_good says no; so a call checks once, before it begins its work. */

enum { MOST_BUFFERS = 12 };

typedef struct {
    PyObject *const *given;
    Py_ssize_t count;
    int next, is_bad, held;
    Py_buffer views[MOST_BUFFERS];
} Call;

/* A buffer of the caller as an array of items. */
typedef struct { void *items; size_t count; } Array;

static inline Call begin(PyObject *const *given, Py_ssize_t count, Py_ssize_t wanted, const char *usage) {
    Call c = {.given = given, .count = count};
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "%s: %zd arguments given", usage, count);
        c.is_bad = 1;
    }
    return c;
}

/* Refuse the call unless ``is_so``. */
static inline int need(Call *c, int is_so, const char *text) {
    if (!c->is_bad && !is_so) PyErr_SetString(PyExc_ValueError, text), c->is_bad = 1;
    return !c->is_bad;
}

static inline int is_good(const Call *c) { return !c->is_bad; }

static inline PyObject *take(Call *c) { return c->is_bad ? NULL : c->given[c->next++]; }

static Array take_array(Call *c, size_t width, int writable) {
    static uint64_t nothing;
    Array a = {&nothing, 0};
    PyObject *given = take(c);
    if (!given) return a;
    Py_buffer *view = c->views + c->held;
    if (PyObject_GetBuffer(given, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE)) { c->is_bad = 1; return a; }
    c->held++;
    if (!need(c, view->len % (Py_ssize_t)width == 0, "a buffer does not have whole items") || !view->len) return a;
    if (!need(c, (uintptr_t)view->buf % width == 0, "a buffer is not aligned")) return a;
    return (Array){view->buf, (size_t)view->len / width};
}

static inline Array take_bytes(Call *c) { return take_array(c, 1, 0); }
static inline Array take_writable_bytes(Call *c) { return take_array(c, 1, 1); }
static inline Array take_ints(Call *c) { return take_array(c, 4, 0); }
static inline Array take_writable_ints(Call *c) { return take_array(c, 4, 1); }
static inline Array take_longs(Call *c) { return take_array(c, 8, 0); }
static inline Array take_writable_longs(Call *c) { return take_array(c, 8, 1); }

static int64_t take_long(Call *c) {
    PyObject *given = take(c);
    if (!given) return 0;
    long long value = PyLong_AsLongLong(given);
    if (value == -1 && PyErr_Occurred()) c->is_bad = 1;
    return value;
}

static int32_t take_int(Call *c) {
    int64_t value = take_long(c);
    if (value == (int32_t)value) return (int32_t)value;
    if (!c->is_bad) PyErr_SetString(PyExc_OverflowError, "a number does not fit its field"), c->is_bad = 1;
    return 0;
}

/* A number of rows, or a place in a buffer: from 0 to ``most``. */
static size_t take_size(Call *c, size_t most) {
    int64_t value = take_long(c);
    return need(c, value >= 0 && (uint64_t)value <= most, "a number is out of bounds") ? (size_t)value : 0;
}

static Text take_text(Call *c) {
    char *p = NULL;
    Py_ssize_t length = 0;
    PyObject *given = take(c);
    if (given && PyBytes_AsStringAndSize(given, &p, &length)) c->is_bad = 1;
    if (!need(c, length <= INT32_MAX, "more bytes than a record can have")) length = 0;
    return (Text){(const uint8_t *)p, (uint32_t)length};
}

static inline int take_truth(Call *c) {
    PyObject *given = take(c);
    return given == Py_True;
}

/* Let the buffers go and return ``result``, which is NULL after an error. */
static PyObject *finish(Call *c, PyObject *result) {
    while (c->held) PyBuffer_Release(c->views + --c->held);
    return result;
}

/* Other threads run while a whole buffer is worked on; for a few records giving way costs more than the work. */
enum { WHOLE_BUFFER = 1 << 16 };
static inline PyThreadState *give_way(size_t bytes) { return bytes >= WHOLE_BUFFER ? PyEval_SaveThread() : NULL; }
static inline void go_on(PyThreadState *state) { if (state) PyEval_RestoreThread(state); }
