/* rmqtool._native: the inner loops over many records.
 *
 * Buffers in, arrays of the caller out, plain numbers back: no files, no numpy, no policy. No function trusts a length
 * or the result of another call; each proves every record it touches with look_at (record.h), and each field of a header
 * with take_field (fields.h). rmqtool/_native.pyi says what the functions are called with. Reading order: record.h,
 * walk.h, table.h, texts.h, properties.h, dispatch.h, index.h, json.h, encode.h, batch.h, message.h, plain.h, fields.h,
 * json_header.h, send.h, pull.h, request.h, answer.h, request_row.h.
 *
 * The limited API of Python 3.11 is all that is used, so one binary serves 3.11 and everything later. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include "crc32.h"
#include "record.h"
#include "walk.h"
#include "table.h"
#include "texts.h"
#include "properties.h"
#include "dispatch.h"
#include "index.h"
#include "json.h"
#include "encode.h"
#include "batch.h"
#include "arguments.h"
#include "message.h"
#include "plain.h"
#include "fields.h"
#include "json_header.h"
#include "send.h"
#include "pull.h"
#include "request.h"
#include "answer.h"
#include "request_row.h"

#ifndef RMQTOOL_SOURCES
#define RMQTOOL_SOURCES 0
#endif

static PyObject *py_crc32(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 1, "crc32(data)");
    Array data = take_bytes(&c);
    if (!is_good(&c)) return finish(&c, NULL);
    PyThreadState *way = give_way(data.count);
    uint32_t crc = crc32_of(data.items, data.count);
    go_on(way);
    return finish(&c, PyLong_FromUnsignedLong(crc));
}

static PyObject *py_crc32_each(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 4, "crc32_each(data, offsets, lengths, crcs)");
    Array data = take_bytes(&c), offsets = take_longs(&c), lengths = take_longs(&c), crcs = take_writable_ints(&c);
    if (!need(&c, offsets.count == lengths.count && offsets.count <= crcs.count, "a buffer is too short")) return finish(&c, NULL);
    const int64_t *at = offsets.items, *length = lengths.items, size = (int64_t)data.count;
    int is_inside = 1;
    PyThreadState *way = give_way(data.count);
    for (size_t i = 0; i < offsets.count && is_inside; i++) {
        int64_t from = at[i], bytes = length[i];
        is_inside = from >= 0 && bytes >= 0 && from <= size && bytes <= size - from;
        if (is_inside) ((uint32_t *)crcs.items)[i] = crc32_of((const uint8_t *)data.items + from, (size_t)bytes);
    }
    go_on(way);
    return finish(&c, need(&c, is_inside, "a piece is not inside the buffer") ? Py_NewRef(Py_None) : NULL);
}

static PyObject *py_walk(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 3, "walk(data, at, starts)");
    Array data = take_bytes(&c);
    int64_t at = (int64_t)take_size(&c, data.count);
    Array starts = take_writable_longs(&c);
    if (!is_good(&c)) return finish(&c, NULL);
    PyThreadState *way = give_way(data.count);
    size_t found = walk(data.items, (int64_t)data.count, &at, starts.items, starts.count);
    go_on(way);
    return finish(&c, Py_BuildValue("nL", (Py_ssize_t)found, (long long)at));
}

static PyObject *py_scan(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 6, "scan(data, at, table, capacity, first_physical_offset, checks)");
    Array data = take_bytes(&c);
    int64_t at = (int64_t)take_size(&c, data.count);
    Array table = take_array(&c, 1, 1);
    size_t capacity = take_size(&c, table.count / ROW_SIZE);
    int64_t base = take_long(&c);
    int checks = take_int(&c);
    if (!need(&c, (uintptr_t)table.items % 8 == 0, "the table is not aligned")) return finish(&c, NULL);
    PyThreadState *way = give_way(data.count);
    size_t rows = scan_rows(table_in(table.items, capacity), capacity, data.items, (int64_t)data.count, &at, base, checks);
    go_on(way);
    return finish(&c, Py_BuildValue("nL", (Py_ssize_t)rows, (long long)at));
}

static PyObject *py_decode(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 5, "decode(data, offsets, table, first_physical_offset, checks)");
    Array data = take_bytes(&c), offsets = take_longs(&c), table = take_array(&c, 1, 1);
    int64_t base = take_long(&c);
    int checks = take_int(&c);
    if (!need(&c, (uintptr_t)table.items % 8 == 0, "the table is not aligned") ||
        !need(&c, offsets.count <= table.count / ROW_SIZE, "a buffer is too short")) return finish(&c, NULL);
    PyThreadState *way = give_way(data.count);
    size_t rows = decode_rows(table_in(table.items, offsets.count), offsets.items, offsets.count, data.items,
                              (int64_t)data.count, base, checks);
    go_on(way);
    return finish(&c, PyLong_FromSize_t(rows));
}

static PyObject *py_sound(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 3, "sound(data, offsets, first_physical_offset)");
    Array data = take_bytes(&c), offsets = take_longs(&c);
    int64_t base = take_long(&c);
    if (!is_good(&c)) return finish(&c, NULL);
    PyThreadState *way = give_way(data.count);
    size_t rows = sound_rows(offsets.items, offsets.count, data.items, (int64_t)data.count, base);
    go_on(way);
    return finish(&c, PyLong_FromSize_t(rows));
}

static PyObject *py_dispatch(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 10, "dispatch(data, offsets, delays, topic_codes, units, flags, topic_rows, key_hashes, key_rows, tag_hashes)");
    Array data = take_bytes(&c), offsets = take_longs(&c), delays = take_longs(&c);
    Array codes = take_writable_ints(&c), units = take_writable_bytes(&c), flags = take_writable_bytes(&c);
    Array topics = take_writable_ints(&c), hashes = take_writable_ints(&c), rows = take_writable_ints(&c);
    Array tags = take_writable_ints(&c);
    if (!need(&c, offsets.count <= INT32_MAX && codes.count >= offsets.count && flags.count >= offsets.count &&
              units.count / CONSUME_QUEUE_UNIT_SIZE >= offsets.count && rows.count >= hashes.count && tags.count >= offsets.count, "a buffer is too short"))
        return finish(&c, NULL);
    Dispatched d = {codes.items, units.items, flags.items, topics.items, hashes.items, rows.items, tags.items,
                    delays.items, topics.count, hashes.count, delays.count, 0, 0};
    PyThreadState *way = give_way(data.count);
    size_t done = dispatch_rows(&d, data.items, (int64_t)data.count, offsets.items, offsets.count);
    go_on(way);
    return finish(&c, Py_BuildValue("nnn", (Py_ssize_t)done, (Py_ssize_t)d.topics, (Py_ssize_t)d.keys));
}

static PyObject *py_dispatch_one(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 4, "dispatch_one(data, offset, first_physical_offset, delays)");
    Array data = take_bytes(&c);
    int64_t at = take_long(&c), base = take_long(&c);
    Array delays = take_longs(&c);
    Single s;
    if (!is_good(&c)) return finish(&c, NULL);
    if (!dispatch_one(&s, data.items, (int64_t)data.count, at, delays.items, delays.count)) return finish(&c, Py_NewRef(Py_None));
    const uint8_t *p = (const uint8_t *)data.items + at;
    int64_t place = long_at(p + FIELD(PHYSICAL_OFFSET)), time = long_at(p + s.parts.born_growth + FIELD(STORE_TIMESTAMP));
    if ((uint64_t)place != (uint64_t)base + (uint64_t)at || time <= 0) return finish(&c, Py_NewRef(Py_None));
    PyObject *hashes = PyTuple_New((Py_ssize_t)s.keys);
    for (size_t i = 0; hashes && i < s.keys; i++) {
        PyObject *hash = PyLong_FromLong(s.hashes[i]);
        if (!hash || PyTuple_SetItem(hashes, (Py_ssize_t)i, hash)) Py_CLEAR(hashes);
    }
    if (!hashes) return finish(&c, NULL);
    return finish(&c, Py_BuildValue("Iy#iLLy#Ni", s.parts.size, p + s.parts.topic, (Py_ssize_t)s.parts.topic_length,
        int_at(p + FIELD(QUEUE_ID)), (long long)long_at(p + FIELD(QUEUE_OFFSET)), (long long)time,
        s.unit, (Py_ssize_t)(s.flags & BESIDE_QUEUE ? 0 : sizeof s.unit), hashes, s.tag_hash));
}

static PyObject *py_span(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 2, "span(units, starts)");
    Array units = take_bytes(&c), starts = take_writable_longs(&c);
    if (!need(&c, units.count % CONSUME_QUEUE_UNIT_SIZE == 0 && starts.count >= units.count / CONSUME_QUEUE_UNIT_SIZE, "a buffer is too short"))
        return finish(&c, NULL);
    Span s;
    int is_one = span_of(&s, units.items, units.count / CONSUME_QUEUE_UNIT_SIZE, starts.items);
    return finish(&c, is_one ? Py_BuildValue("LLLi", (long long)s.low, (long long)s.high, (long long)s.size, s.has_gaps) : Py_NewRef(Py_None));
}

static PyObject *py_group(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 6, "group(topic_codes, queue_ids, order, codes, ends, firsts)");
    Array topics = take_ints(&c), queues = take_ints(&c), order = take_writable_ints(&c), codes = take_writable_ints(&c);
    Array ends = take_writable_ints(&c), firsts = take_writable_ints(&c);
    size_t rows = topics.count;
    if (!need(&c, rows <= INT32_MAX && queues.count == rows && order.count >= rows && codes.count >= rows &&
              firsts.count >= ends.count, "a buffer is too short")) return finish(&c, NULL);
    PyThreadState *way = give_way(rows);
    int64_t found = group_rows(topics.items, queues.items, rows, order.items, codes.items, ends.items, firsts.items, ends.count);
    go_on(way);
    return finish(&c, PyLong_FromLongLong(found));
}

static PyObject *py_number_texts(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 5, "number_texts(data, offsets, lengths, codes, firsts)");
    Array data = take_bytes(&c), offsets = take_longs(&c), lengths = take_longs(&c);
    Array codes = take_writable_ints(&c), firsts = take_writable_ints(&c);
    if (!need(&c, offsets.count <= INT32_MAX && lengths.count == offsets.count && codes.count >= offsets.count, "a buffer is too short"))
        return finish(&c, NULL);
    PyThreadState *way = give_way(data.count);
    int64_t found = number_texts(data.items, (int64_t)data.count, offsets.items, lengths.items, offsets.count, codes.items, firsts.items,
                                 firsts.count);
    go_on(way);
    return finish(&c, need(&c, found != -2, "a text is not inside the buffer") ? PyLong_FromLongLong(found) : NULL);
}

/* Take the wanted names, each with a separator after it, and the room for their columns. */
static void take_wanted(Call *c, Columns *to, size_t rows) {
    Array names = take_bytes(c), ends = take_writable_ints(c), texts = take_writable_bytes(c);
    const uint8_t *p = names.items, *stop = p + names.count;
    for (const uint8_t *end; is_good(c) && p < stop && (end = memchr(p, PROPERTY_SEPARATOR[0], (size_t)(stop - p))); p = end + 1)
        if (need(c, to->count < MOST_WANTED, "too many names")) to->called[to->count++] = (Text){p, (uint32_t)(end - p)};
    if (!is_good(c) || !to->count || !need(c, p == stop && ends.count / to->count > rows, "a buffer is too short")) return;
    size_t room = texts.count / to->count;
    for (size_t i = 0; i < to->count; i++)
        to->wanted[i] = (Column){(int32_t *)ends.items + i * (rows + 1), (uint8_t *)texts.items + i * room, 0};
    if (room < to->room) to->room = room;
}

static PyObject *py_property_columns(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 11, "property_columns(data, offsets, lengths, ends, name_ends, names, value_ends, values, wanted, wanted_ends, wanted_values)");
    Array data = take_bytes(&c), offsets = take_longs(&c), lengths = take_longs(&c), ends = take_writable_ints(&c);
    Array name_ends = take_writable_ints(&c), names = take_writable_bytes(&c), value_ends = take_writable_ints(&c), values = take_writable_bytes(&c);
    Columns to = {.names = {name_ends.items, names.items, 0}, .values = {value_ends.items, values.items, 0},
                  .room = names.count < values.count ? names.count : values.count};
    take_wanted(&c, &to, offsets.count);
    if (!need(&c, lengths.count == offsets.count && ends.count > offsets.count && name_ends.count && value_ends.count == name_ends.count &&
              name_ends.count <= INT32_MAX && to.room <= INT32_MAX,
              "a buffer is too short")) return finish(&c, NULL);
    to.most_pairs = name_ends.count - 1;
    PyThreadState *way = give_way(data.count);
    int64_t pairs = fill_columns(&to, data.items, (int64_t)data.count, offsets.items, lengths.items, offsets.count, ends.items);
    go_on(way);
    return finish(&c, need(&c, pairs != -2, "a text is not inside the buffer, or has no room") ? PyLong_FromLongLong(pairs) : NULL);
}

static PyObject *py_hang_in(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 7, "hang_in(entries, slots, key_hashes, physical_offsets, store_timestamps, first, begin_timestamp)");
    Array entries = take_writable_bytes(&c), slots = take_writable_bytes(&c);
    Array hashes = take_ints(&c), places = take_longs(&c), times = take_longs(&c);
    int32_t first = take_int(&c);
    int64_t begin_time = take_long(&c);
    size_t keys = hashes.count, slot_count = slots.count / INDEX_SLOT_SIZE;
    if (!need(&c, places.count == keys && times.count == keys && entries.count / INDEX_ENTRY_SIZE >= keys, "a buffer is too short") ||
        !need(&c, slot_count && slot_count <= INT32_MAX, "no slots") ||
        !need(&c, first > 0 && keys <= (size_t)(INT32_MAX - first), "a number is out of bounds")) return finish(&c, NULL);
    PyThreadState *way = give_way(entries.count);
    int64_t taken = hang_in(entries.items, slots.items, (uint32_t)slot_count, (Keys){hashes.items, places.items, times.items, keys},
                            first, begin_time);
    go_on(way);
    return finish(&c, PyLong_FromLongLong(taken));
}

static PyObject *py_json_lines(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 5, "json_lines(data, offsets, row, ends, out)");
    Array data = take_bytes(&c), offsets = take_longs(&c);
    size_t row = take_size(&c, offsets.count);
    Array ends = take_writable_longs(&c), out = take_writable_bytes(&c);
    if (!need(&c, ends.count >= offsets.count, "a buffer is too short")) return finish(&c, NULL);
    PyThreadState *way = give_way(data.count);
    size_t used = put_lines(out.items, out.count, data.items, (int64_t)data.count, offsets.items, ends.items, &row, offsets.count);
    go_on(way);
    return finish(&c, Py_BuildValue("nn", (Py_ssize_t)row, (Py_ssize_t)used));
}

static PyObject *py_encode(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 15, "encode(magic, queue_id, flag, sys_flag, born_timestamp, born_ip, born_port, store_ip, store_port, "
                   "reconsume_times, prepared_transaction_offset, body, topic, properties, has_crc)");
    Content r = {0};
    int64_t magic = take_long(&c);
    r.queue_id = take_int(&c), r.flag = take_int(&c), r.sys_flag = (uint32_t)take_int(&c), r.born_timestamp = take_long(&c);
    r.born_host.ip = take_text(&c), r.born_host.port = take_int(&c);
    r.store_host.ip = take_text(&c), r.store_host.port = take_int(&c);
    r.reconsume_times = take_int(&c), r.prepared_transaction_offset = take_long(&c), r.body = take_text(&c);
    Text topic = take_text(&c), text = take_text(&c);
    uint32_t block = take_truth(&c) ? CRC_BLOCK : 0;
    if (!is_good(&c) || !need(&c, magic == MESSAGE_MAGIC_V1 || magic == MESSAGE_MAGIC_V2, "no magic of a message") ||
        !need(&c, is_ip(r.born_host.ip) && is_ip(r.store_host.ip), "an address has 4 or 16 bytes") ||
        !need(&c, topic.length <= MOST_SHORT + 2 && text.length + block <= MOST_SHORT, "topic or properties are too long"))
        return finish(&c, NULL);
    r.magic = (uint32_t)magic;
    uint64_t size = (uint64_t)prefix_size(&r) + r.body.length + topic.length + PROPERTIES_LENGTH_SIZE + text.length + block;
    if (!need(&c, size <= INT32_MAX, "the record is too long")) return finish(&c, NULL);
    PyObject *record = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!record) return finish(&c, NULL);
    uint8_t *p = (uint8_t *)PyByteArray_AsString(record), *at = put_head(p, &r, (uint32_t)size);
    memcpy(at, topic.p, topic.length), at += topic.length;
    *at++ = (uint8_t)((text.length + block) >> 8), *at++ = (uint8_t)(text.length + block);
    memcpy(at, text.p, text.length);
    memset(at + text.length, 0, block);
    return finish(&c, record);
}

static PyObject *py_place(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 5, "place(record, queue_offset, physical_offset, store_timestamp, has_crc)");
    Array record = take_writable_bytes(&c);
    int64_t queue_offset = take_long(&c), place = take_long(&c), store_timestamp = take_long(&c);
    int has_crc = take_truth(&c);
    if (!need(&c, record.count >= LEAST_RECORD + (has_crc ? CRC_BLOCK : 0u), "no record")) return finish(&c, NULL);
    place_record(record.items, record.count, queue_offset, place, store_timestamp, has_crc);
    return finish(&c, Py_NewRef(Py_None));
}

static PyObject *py_encode_batch(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 14, "encode_batch(magic, queue_id, sys_flag, born_timestamp, born_ip, born_port, store_ip, store_port, "
                   "reconsume_times, prepared_transaction_offset, messages, topic, shared, most)");
    Batch b = {0};
    Content *r = &b.common;
    int64_t magic = take_long(&c);
    r->queue_id = take_int(&c), r->sys_flag = (uint32_t)take_int(&c), r->born_timestamp = take_long(&c);
    r->born_host.ip = take_text(&c), r->born_host.port = take_int(&c);
    r->store_host.ip = take_text(&c), r->store_host.port = take_int(&c);
    r->reconsume_times = take_int(&c), r->prepared_transaction_offset = take_long(&c);
    b.messages = take_text(&c), b.topic = take_text(&c), b.shared = take_text(&c);
    b.most = (uint32_t)take_size(&c, INT32_MAX);
    if (!is_good(&c) || !need(&c, magic == MESSAGE_MAGIC_V1 || magic == MESSAGE_MAGIC_V2, "no magic of a message") ||
        !need(&c, is_ip(r->born_host.ip) && is_ip(r->store_host.ip), "an address has 4 or 16 bytes") ||
        !need(&c, b.topic.length <= MOST_SHORT + 2 && b.shared.length <= MOST_SHORT, "topic or properties are too long"))
        return finish(&c, NULL);
    r->magic = (uint32_t)magic;
    uint64_t total;
    size_t messages = measure_batch(&b, &total);
    if (!messages) return finish(&c, Py_NewRef(Py_None));
    PyObject *records = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (!records) return finish(&c, NULL);
    put_batch(&b, (uint8_t *)PyByteArray_AsString(records));
    return finish(&c, Py_BuildValue("Nn", records, (Py_ssize_t)messages));
}

static PyObject *py_place_batch(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 5, "place_batch(records, queue_offset, physical_offset, store_timestamp, places)");
    Array records = take_writable_bytes(&c);
    int64_t queue_offset = take_long(&c), place = take_long(&c), store_timestamp = take_long(&c);
    Array places = take_writable_longs(&c);
    if (!is_good(&c)) return finish(&c, NULL);
    size_t placed = place_records(records.items, records.count, queue_offset, place, store_timestamp, places.items, places.count);
    return finish(&c, need(&c, placed && placed == places.count, "not that many records") ? Py_NewRef(Py_None) : NULL);
}

static PyObject *py_header_fields(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 4, "header_fields(data, at, end, most)");
    Array data = take_bytes(&c);
    size_t at = take_size(&c, data.count), end = take_size(&c, data.count), most = take_size(&c, INT32_MAX);
    if (!need(&c, at <= end, "a number is out of bounds")) return finish(&c, NULL);
    const uint8_t *p = (const uint8_t *)data.items + at, *last = (const uint8_t *)data.items + end;
    PyObject *fields = PyDict_New();
    int is_taken = 1, is_plain = 1;
    for (Pair field; fields && is_taken && is_plain && p < last;) {
        is_plain = take_field(&p, last, &field);
        if (!is_plain || !field.name.length || !field.value.length) continue;
        PyObject *name = PyUnicode_FromStringAndSize((const char *)field.name.p, field.name.length);
        PyObject *value = PyUnicode_FromStringAndSize((const char *)field.value.p, field.value.length);
        is_taken = name && value && !PyDict_SetItem(fields, name, value);
        Py_XDECREF(name), Py_XDECREF(value);
        is_plain = (size_t)PyDict_Size(fields) <= most;
    }
    if (fields && is_taken && is_plain) return finish(&c, fields);
    Py_XDECREF(fields);
    return finish(&c, fields && is_taken ? Py_NewRef(Py_None) : NULL);
}

/* Return the text of a string as a Python object; NULL without an error where it is declined. */
static PyObject *read_text(Reader *r) {
    Text raw;
    int escapes;
    uint8_t small[1024], *to = small;
    if (!take_string(r, &raw, &escapes)) return NULL;
    if (!escapes) return PyUnicode_FromStringAndSize((const char *)raw.p, raw.length);
    if (raw.length > sizeof small && !(to = PyMem_Malloc(raw.length))) return PyErr_NoMemory();
    int64_t length = unescape(raw, to);
    PyObject *text = length < 0 ? NULL : PyUnicode_FromStringAndSize((const char *)to, (Py_ssize_t)length);
    if (to != small) PyMem_Free(to);
    return text;
}

/* Return the fields of ``extFields``; NULL without an error where they are not all texts, or more than ``most``. */
static PyObject *read_fields(Reader *r, size_t most) {
    PyObject *fields = take_mark(r, '{') ? PyDict_New() : NULL;
    int is_good = fields && !take_mark(r, '}');
    if (fields && !is_good) return fields;
    for (int is_last = 0; is_good && !is_last; is_last = !take_mark(r, ',')) {
        PyObject *name = read_text(r), *value = name && take_mark(r, ':') ? read_text(r) : NULL;
        is_good = value && !PyDict_SetItem(fields, name, value) && (size_t)PyDict_Size(fields) <= most;
        Py_XDECREF(name), Py_XDECREF(value);
    }
    if (is_good && take_mark(r, '}')) return fields;
    Py_XDECREF(fields);
    return NULL;
}

enum { STRING_FIELD, INT_FIELD, LONG_FIELD, BOOLEAN_FIELD };

/* Return the value of a field's text; NULL without an error where it is not the usual spelling of its type. */
static PyObject *typed_value(PyObject *text, long type) {
    Py_ssize_t length;
    const char *p = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    if (!p) return PyErr_Clear(), NULL;
    if (type == STRING_FIELD) return Py_NewRef(text);
    if (type == BOOLEAN_FIELD) {
        int is_true = is_word((Text){(const uint8_t *)p, (uint32_t)length}, "true", 4);
        return is_true || is_word((Text){(const uint8_t *)p, (uint32_t)length}, "false", 5) ? PyBool_FromLong(is_true) : NULL;
    }
    if ((type != INT_FIELD && type != LONG_FIELD) || !length || length > (type == INT_FIELD ? INT_DIGITS : LONG_DIGITS)) return NULL;
    long long value = 0;
    for (const char *end = p + length; p < end; p++) {
        if (*p < '0' || *p > '9') return NULL;
        value = value * 10 + (*p - '0');
    }
    return PyLong_FromLongLong(value);
}

static PyObject *py_typed_fields(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyDict_Check(args[0]) || !PyDict_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "typed_fields(ext, types): two dicts");
    PyObject *found = PyDict_New(), *name, *text;
    for (Py_ssize_t at = 0; found && PyDict_Next(args[0], &at, &name, &text);) {
        PyObject *entry = PyDict_GetItemWithError(args[1], name);
        if (!entry && !PyErr_Occurred()) continue;
        PyObject *type = entry && PyTuple_Check(entry) && PyTuple_Size(entry) == 2 ? PyTuple_GetItem(entry, 1) : NULL;
        if (!type && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a type is a tuple of attribute and number");
        PyObject *value = type ? typed_value(text, PyLong_AsLong(type)) : NULL;
        int is_set = value && !PyDict_SetItem(found, PyTuple_GetItem(entry, 0), value);
        Py_XDECREF(value);
        if (is_set) continue;
        Py_DECREF(found);
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return found;
}

/* The members of a header that have a text or fields, and those that have a number. */
enum { EXT_FIELDS, LANGUAGE, REMARK, OBJECTS };
enum { CODE, OPAQUE, COMMAND_FLAG, VERSION, NUMBERS };

/* Read one member; return 0 where it is declined. */
static int read_member(Reader *r, PyObject **objects, int64_t *numbers, size_t most, int *others) {
    static const char *const number_names[NUMBERS] = {"code", "opaque", "flag", "version"};
    Text name;
    int escapes;
    if (!take_string(r, &name, &escapes) || escapes || !take_mark(r, ':')) return 0;
    for (int i = 0; i < NUMBERS; i++)
        if (is_word(name, number_names[i], (uint32_t)strlen(number_names[i]))) return take_number(r, numbers + i);
    int place = IS(name, "extFields") ? EXT_FIELDS : IS(name, "language") ? LANGUAGE : IS(name, "remark") ? REMARK : OBJECTS;
    if (place == OBJECTS) {
        Text value;
        return ++*others <= MOST_OTHER_MEMBERS && take_string(r, &value, &escapes) && !escapes;
    }
    Py_XDECREF(objects[place]);
    return (objects[place] = place == EXT_FIELDS ? read_fields(r, most) : read_text(r)) != NULL;
}

static PyObject *py_json_header(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    Call c = begin(args, count, 4, "json_header(data, at, end, most)");
    Array data = take_bytes(&c);
    size_t at = take_size(&c, data.count), end = take_size(&c, data.count), most = take_size(&c, INT32_MAX);
    if (!need(&c, at <= end, "a number is out of bounds")) return finish(&c, NULL);
    Reader r = {(const uint8_t *)data.items + at, (const uint8_t *)data.items + end};
    PyObject *objects[OBJECTS] = {NULL}, *made = NULL;
    int64_t numbers[NUMBERS] = {0};
    int others = 0, is_good = take_mark(&r, '{');
    for (int is_last = 0; is_good && !is_last; is_last = !take_mark(&r, ',')) is_good = read_member(&r, objects, numbers, most, &others);
    if (is_good && take_mark(&r, '}') && r.p == r.end) {
#define OR_NONE(object) (object) ? (object) : Py_None
        made = Py_BuildValue("(LOLLOLO)", (long long)numbers[CODE], OR_NONE(objects[EXT_FIELDS]), (long long)numbers[OPAQUE],
                             (long long)numbers[COMMAND_FLAG], OR_NONE(objects[LANGUAGE]), (long long)numbers[VERSION], OR_NONE(objects[REMARK]));
    } else if (!PyErr_Occurred()) made = Py_NewRef(Py_None);
    for (int i = 0; i < OBJECTS; i++) Py_XDECREF(objects[i]);
    return finish(&c, made);
}

/* A number for each row, or one for all. */
typedef struct { Py_buffer view; const int64_t *each; int64_t all; int is_held; } Numbers;

static int take_numbers(Numbers *n, PyObject *given, Py_ssize_t rows) {
    if (PyLong_Check(given)) return (n->all = PyLong_AsLongLong(given)) != -1 || !PyErr_Occurred();
    if (PyObject_GetBuffer(given, &n->view, PyBUF_SIMPLE)) return 0;
    n->is_held = 1, n->each = n->view.buf;
    if (n->view.len == rows * 8 && (uintptr_t)n->each % 8 == 0) return 1;
    PyErr_SetString(PyExc_ValueError, "a column does not have a number for each row");
    return 0;
}

static inline int64_t number_at(const Numbers *n, Py_ssize_t row) { return n->each ? n->each[row] : n->all; }

static int bytes_in(PyObject *list, Py_ssize_t row, Text *text) {
    char *p;
    Py_ssize_t length;
    PyObject *item = PyList_GetItem(list, row);
    if (!item || PyBytes_AsStringAndSize(item, &p, &length)) return 0;
    if (length > INT32_MAX) { PyErr_SetString(PyExc_ValueError, "more bytes than a record can have"); return 0; }
    *text = (Text){(const uint8_t *)p, (uint32_t)length};
    return 1;
}

/* A host in a column is its address and its port behind it. */
static int host_in(PyObject *list, Py_ssize_t row, Host *host) {
    Text whole;
    if (!bytes_in(list, row, &whole)) return 0;
    if (whole.length != SHORT_IP + 4 && whole.length != LONG_IP + 4) { PyErr_SetString(PyExc_ValueError, "no host"); return 0; }
    *host = (Host){{whole.p, whole.length - 4}, int_at(whole.p + whole.length - 4)};
    return 1;
}

enum { MAGIC, QUEUE_ID, FLAG, QUEUE_OFFSET, SYS_FLAG, BORN, STORED, RECONSUME, PREPARED, SLAB_COLUMNS };

/* The columns of a slab; a host for each row, or one for all. */
typedef struct { PyObject *bodies, *tails, *born_hosts, *store_host; Numbers numbers[SLAB_COLUMNS]; Py_ssize_t rows; } Slab;

static int slab_row(const Slab *s, Py_ssize_t row, int64_t place, Content *c, Text *tail) {
    const Numbers *n = s->numbers;
    *c = (Content){
        .magic = (uint32_t)number_at(n + MAGIC, row), .sys_flag = (uint32_t)number_at(n + SYS_FLAG, row),
        .queue_id = (int32_t)number_at(n + QUEUE_ID, row), .flag = (int32_t)number_at(n + FLAG, row),
        .reconsume_times = (int32_t)number_at(n + RECONSUME, row), .queue_offset = number_at(n + QUEUE_OFFSET, row),
        .physical_offset = place, .born_timestamp = number_at(n + BORN, row), .store_timestamp = number_at(n + STORED, row),
        .prepared_transaction_offset = number_at(n + PREPARED, row)};
    return bytes_in(s->bodies, row, &c->body) && bytes_in(s->tails, row, tail) &&
           host_in(s->born_hosts, PyList_Size(s->born_hosts) == 1 ? 0 : row, &c->born_host) && host_in(s->store_host, 0, &c->store_host);
}

static int numbers_fit(const Slab *s, Py_ssize_t row) {
    static const int ints[] = {QUEUE_ID, FLAG, SYS_FLAG, RECONSUME};
    int64_t magic = number_at(s->numbers + MAGIC, row);
    int fit = magic >= 0 && magic <= UINT32_MAX;
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        int64_t value = number_at(s->numbers + ints[i], row);
        fit &= value == (int32_t)value;
    }
    if (!fit) PyErr_SetString(PyExc_OverflowError, "a number does not fit its field");
    return fit;
}

static PyObject *make_slab(const Slab *s, int64_t place, int64_t *sizes) {
    Content c;
    Text tail;
    int64_t total = 0;
    for (Py_ssize_t row = 0; row < s->rows; row++) {
        if (!numbers_fit(s, row) || !slab_row(s, row, 0, &c, &tail)) return NULL;
        sizes[row] = (int64_t)prefix_size(&c) + c.body.length + tail.length;
        if (sizes[row] > INT32_MAX) return PyErr_Format(PyExc_ValueError, "a record is too long");
        total += sizes[row];
    }
    PyObject *made = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    uint8_t *to = made ? (uint8_t *)PyByteArray_AsString(made) : NULL;
    for (Py_ssize_t row = 0; made && row < s->rows; row++) {
        /* The lists are the caller's: what was seen above must still be there. */
        if (!slab_row(s, row, place, &c, &tail) || (int64_t)prefix_size(&c) + c.body.length + tail.length != sizes[row]) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a column changed");
            Py_DECREF(made);
            return NULL;
        }
        memcpy(put_head(to, &c, (uint32_t)sizes[row]), tail.p, tail.length);
        to += sizes[row], place += sizes[row];
    }
    return made;
}

static PyObject *py_encode_slab(PyObject *self, PyObject *args) {
    Slab s = {0};
    PyObject *numbers, *sizes;
    long long place;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!LO:encode_slab", &PyList_Type, &s.bodies, &PyList_Type, &s.tails, &PyTuple_Type, &numbers,
                          &PyList_Type, &s.born_hosts, &PyList_Type, &s.store_host, &place, &sizes)) return NULL;
    s.rows = PyList_Size(s.bodies);
    if (PyObject_GetBuffer(sizes, &view, PyBUF_WRITABLE)) return NULL;
    Py_ssize_t hosts = PyList_Size(s.born_hosts);
    int good = PyList_Size(s.tails) == s.rows && PyTuple_Size(numbers) == SLAB_COLUMNS && (hosts == 1 || hosts == s.rows) &&
               PyList_Size(s.store_host) == 1 && view.len == s.rows * 8 && (uintptr_t)view.buf % 8 == 0;
    if (!good) PyErr_SetString(PyExc_ValueError, "columns of different lengths");
    for (int i = 0; good && i < SLAB_COLUMNS; i++) good = take_numbers(s.numbers + i, PyTuple_GetItem(numbers, i), s.rows);
    PyObject *made = good ? make_slab(&s, place, view.buf) : NULL;
    for (int i = 0; i < SLAB_COLUMNS; i++) if (s.numbers[i].is_held) PyBuffer_Release(&s.numbers[i].view);
    PyBuffer_Release(&view);
    return made;
}

#define FAST(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}
static PyMethodDef methods[] = {
    FAST(crc32), FAST(crc32_each), FAST(walk), FAST(scan), FAST(decode), FAST(sound), FAST(dispatch), FAST(dispatch_one), FAST(span), FAST(group), FAST(number_texts), FAST(property_columns), FAST(hang_in),
    FAST(json_lines), FAST(encode), FAST(place), FAST(encode_batch), FAST(place_batch), FAST(decoder), FAST(decoder_of_many), FAST(text_maker), FAST(record_kind), FAST(plain_record),
    FAST(header_fields), FAST(json_header), FAST(typed_fields), FAST(plain_requests), FAST(answer_frame),
    {"encode_slab", py_encode_slab, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static int fill_module(PyObject *module) {
    crc32_init();
    json_init();
    return PyModule_AddIntConstant(module, "SOURCES", (long)RMQTOOL_SOURCES) ||
           PyModule_AddIntConstant(module, "ROW_SIZE", ROW_SIZE) ||
           PyModule_AddStringConstant(module, "CRC", crc32_way) ||
           PyModule_AddStringConstant(module, "COLUMNS", column_names) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
