/* Fuzzing of everything in the kernel that reads bytes of others. With clang this is an entry for libFuzzer:
 *
 *     clang -g -fsanitize=fuzzer,address,undefined -o fuzz native/fuzz.c && ./fuzz CORPUS
 *
 * With gcc there is a driver of its own, which changes the seeds it is given (tests/contract/test_kernel_fuzz.py):
 *
 *     gcc -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -DDRIVER -o fuzz native/fuzz.c && ./fuzz SECONDS SEED FILE...
 *
 * Each buffer is as long as it has to be and no longer, so that the first byte read or written outside is seen. */
#include <stdio.h>
#include <stdlib.h>
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
#include "fields.h"
#include "json_header.h"
#include "send.h"
#include "pull.h"
#include "request.h"
#include "answer.h"

static void *room_for(size_t count, size_t width) {
    void *made = malloc(count * width ? count * width : 1);
    if (!made) abort();
    return made;
}

#define expect(is_so) do { if (!(is_so)) fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #is_so), abort(); } while (0)

/* The walk and the scan agree; the table is as long as the rows. Return the starts. */
static size_t fuzz_scan(const uint8_t *data, int64_t size, int64_t **starts) {
    size_t room = (size_t)size / LEAST_RECORD + CHAINS + 2;
    int64_t at = 0, from = 0, *found = room_for(room, sizeof *found);
    size_t count = walk(data, size, &at, found, room);
    void *buffer = room_for(count, ROW_SIZE);
    Table table = table_in(buffer, count);
    size_t rows = scan_rows(table, count, data, size, &from, 0, WRONG_CRC | WRONG_PROPERTY_CRC);
    expect(rows <= count && from <= size);
    for (size_t i = 0; i < rows; i++) expect(table.file_offset[i] == found[i]);
    decode_rows(table, found, count, data, size, 1 << 20, WRONG_CRC | WRONG_PROPERTY_CRC);
    free(buffer);
    expect(sound_rows(found, count, data, size, 0) <= count);
    *starts = found;
    return count;
}

static void fuzz_dispatch(const uint8_t *data, int64_t size, const int64_t *starts, size_t count) {
    enum { MOST_TOPICS = 8 };
    const int64_t delays[] = {1000, 5000};
    size_t most_keys = 64;
    int32_t *codes = room_for(count, 4), *topics = room_for(MOST_TOPICS, 4), *hashes = room_for(most_keys, 4), *rows = room_for(most_keys, 4), *tags = room_for(count, 4);
    uint8_t *units = room_for(count, CONSUME_QUEUE_UNIT_SIZE), *flags = room_for(count, 1);
    for (size_t done = 0, more = 1; done < count && more; done += more) {
        Dispatched d = {codes + done, units + CONSUME_QUEUE_UNIT_SIZE * done, flags + done, topics, hashes, rows, tags + done,
                        delays, MOST_TOPICS, most_keys, 2, 0, 0};
        more = dispatch_rows(&d, data, size, starts + done, count - done);
        expect(d.topics <= MOST_TOPICS && d.keys <= most_keys);
        for (size_t i = done; i < done + more; i++) expect(codes[i] >= 0 && (size_t)codes[i] < d.topics);
        int32_t *order = room_for(more, 4), *scratch = room_for(more, 4), ends[4], firsts[4];
        group_rows(codes + done, codes + done, more, order, scratch, ends, firsts, 4);
        free(order), free(scratch);
        uint8_t *entries = room_for(d.keys, INDEX_ENTRY_SIZE), slots[7 * INDEX_SLOT_SIZE] = {0xFF, 0, 0, 0, 0x7F};
        int64_t *places = room_for(d.keys, 8);
        memset(places, (int)(size & 0xFF), d.keys * 8);
        hang_in(entries, slots, 7, (Keys){hashes, places, places, d.keys}, 1, size);
        free(entries), free(places);
    }
    free(codes), free(topics), free(hashes), free(rows), free(units), free(flags), free(tags);
}

static void fuzz_lines(const uint8_t *data, int64_t size, const int64_t *starts, size_t count, size_t room) {
    size_t row = 0;
    char *out = room_for(room, 1);
    int64_t *ends = room_for(count, 8);
    for (; row < count; row++) { /* a row that is declined is stepped over */
        size_t used = put_lines(out, room, data, size, starts, ends, &row, count);
        expect(used <= room);
    }
    free(out), free(ends);
}

/* A record is made of what one says, and a place put into it. */
static void fuzz_encode(const uint8_t *data, int64_t size, const int64_t *starts, size_t count) {
    Parts r;
    if (!count || !look_within(data, size, starts[0], &r)) return;
    const uint8_t *p = data + starts[0];
    uint32_t ip = r.born_growth ? LONG_IP : SHORT_IP;
    Content c = {.magic = MESSAGE_MAGIC_V1, .sys_flag = r.sys_flag, .born_host = {{p + FIELD(BORN_HOST_IP), ip}, 1},
                 .store_host = {{p + FIELD(BORN_HOST_IP), SHORT_IP}, 2}, .body = {p + r.body, r.body_length}};
    size_t made_size = prefix_size(&c) + r.body_length + 3 + CRC_BLOCK;
    uint8_t *made = room_for(made_size, 1), *end = put_head(made, &c, (uint32_t)made_size);
    expect(end + 3 + CRC_BLOCK == made + made_size);
    end[0] = 0, end[1] = 0, end[2] = CRC_BLOCK;
    place_record(made, made_size, 1, 2, 3, 1);
    Parts again;
    expect(look_at(made, (int64_t)made_size, &again) && !property_crc_is_wrong(made, &again));
    free(made);
}

/* Bytes as properties: the record of a plain message is as long as it says, and whole. */
static void fuzz_plain(const uint8_t *data, size_t size) {
    static const uint8_t topic[] = {1, 'T'}, ip[LONG_IP];
    Pair pairs[8];
    size_t count = size % 8, each = count ? size / (2 * count) : 0;
    for (size_t i = 0; i < count; i++)
        pairs[i] = (Pair){{data + 2 * i * each, (uint32_t)each}, {data + (2 * i + 1) * each, (uint32_t)each}};
    Content c = {.magic = MESSAGE_MAGIC_V1, .born_host = {{ip, size & 8 ? LONG_IP : SHORT_IP}, 1}, .store_host = {{ip, SHORT_IP}, 2},
                 .body = {data, (uint32_t)size}};
    for (int is_terminated = 0; is_terminated < 2; is_terminated++) {
        Properties text = {pairs, count, is_terminated};
        uint32_t made_size = size_of_plain(&c, (Text){topic, 2}, &text, 1 << 18);
        if (!made_size) continue;
        uint8_t *made = room_for(made_size, 1);
        expect(put_plain(made, &c, (Text){topic, 2}, &text, made_size) == made + made_size);
        Parts again;
        expect(look_at(made, made_size, &again) && again.size == made_size && again.body_length == size);
        expect(!size_of_plain(&c, (Text){topic, 2}, &text, made_size - 1));
        free(made);
    }
}

/* Bytes as the batch of a client: the records that are made of it are whole, and get their places. */
static void fuzz_batch(const uint8_t *data, size_t size) {
    static const uint8_t topic[] = {1, 'T'}, shared[] = {'a', 1, 'b'};
    for (int shares = 0; shares < 2; shares++) {
        Batch b = {.common = {.magic = MESSAGE_MAGIC_V1, .born_host = {{topic, 0}, 1}, .store_host = {{topic, 0}, 2}},
                   .topic = {topic, 2}, .shared = {shared, shares ? sizeof shared : 0}, .messages = {data, (uint32_t)size}, .most = 1 << 20};
        static const uint8_t ip[LONG_IP];
        b.common.born_host.ip = (Text){ip, shares ? LONG_IP : SHORT_IP}, b.common.store_host.ip = (Text){ip, SHORT_IP};
        uint64_t total;
        size_t count = measure_batch(&b, &total);
        if (!count) continue;
        uint8_t *records = room_for(total, 1);
        int64_t *places = room_for(count, 8);
        expect(put_batch(&b, records) == records + total);
        expect(place_records(records, total, 5, 1000, 7, places, count) == count && places[0] == 1000);
        expect(count == 1 || place_records(records, total, 5, 1000, 7, places, count - 1) == 0);
        free(records), free(places);
    }
    int64_t *places = room_for(4, 8);
    uint8_t *changed = room_for(size, 1);
    if (size) memcpy(changed, data, size);
    expect(place_records(changed, size, 5, 1000, 7, places, 4) <= 4);
    free(places), free(changed);
}

static void fuzz_single(const uint8_t *data, int64_t size, const int64_t *starts, size_t count) {
    const int64_t delays[] = {1000, 5000};
    for (size_t i = 0; i < count; i++) {
        Single *single = room_for(1, sizeof *single);
        if (dispatch_one(single, data, size, starts[i], delays, 2)) expect(single->keys <= KEYS_OF_ONE);
        free(single);
    }
}

/* Texts at the starts of records, which overlap, and one that may end after the data. */
static void fuzz_texts(const uint8_t *data, int64_t size, const int64_t *starts, size_t count) {
    int64_t *lengths = room_for(count, 8);
    for (size_t i = 0; i < count; i++) {
        int is_near_end = starts[i] >= 0 && size - starts[i] < 200;
        lengths[i] = is_near_end ? size - starts[i] + (size & 1) : (int64_t)i % 40;
    }
    int32_t *codes = room_for(count, 4), firsts[16];
    int64_t found = number_texts(data, size, starts, lengths, count, codes, firsts, 16);
    for (size_t i = 0; found >= 0 && i < count; i++) expect(codes[i] < found && firsts[codes[i]] <= (int32_t)i);
    free(lengths), free(codes);
}

/* Bytes as blocks of properties: the columns have the room that the blocks may need, and an eighth of it. */
static void fuzz_properties(const uint8_t *data, int64_t size, const int64_t *starts, size_t count) {
    int64_t *offsets = room_for(count + 2, 8), *lengths = room_for(count + 2, 8);
    size_t rows = 0, room = 0, pairs = 0;
    for (size_t i = 0; i < count; i++) {
        Parts r;
        int is_record = look_within(data, size, starts[i], &r);
        offsets[rows] = is_record ? starts[i] + r.properties : starts[i], lengths[rows] = is_record ? r.properties_length : (int64_t)i % 40;
        rows++;
    }
    offsets[rows] = 0, lengths[rows++] = size < MOST_SHORT ? size : MOST_SHORT;
    offsets[rows] = size / 2, lengths[rows++] = size - size / 2 + size % 2; /* may end after the data */
    for (size_t first = 0; first < rows; first++) {
        int64_t length = lengths[first] < 0 || lengths[first] > MOST_SHORT ? 0 : lengths[first];
        room += (size_t)length, pairs += ((size_t)length + 1) / LEAST_PAIR;
    }
    for (int part = 1; part <= 8; part *= 8, room /= 8, pairs /= 8) {
        int32_t *ends = room_for(rows + 1, 4), *name_ends = room_for(pairs + 1, 4), *value_ends = room_for(pairs + 1, 4), *wanted_ends = room_for(rows + 1, 4);
        uint8_t *names = room_for(room, 1), *values = room_for(room, 1), *wanted = room_for(room, 1);
        Columns c = {.names = {name_ends, names, 0}, .values = {value_ends, values, 0},
                     .wanted = {{wanted_ends, wanted, 0}}, .called = {{(const uint8_t *)"KEYS", 4}}, .count = 1, .most_pairs = pairs, .room = room};
        for (size_t from = 0; from < rows; from++) { /* after a row that is declined */
            c.taken = c.pairs = c.names.used = c.values.used = c.wanted[0].used = 0;
            int64_t found = fill_columns(&c, data, size, offsets + from, lengths + from, rows - from, ends);
            expect(found <= (int64_t)c.most_pairs && c.names.used + c.values.used <= room);
        }
        free(ends), free(name_ends), free(value_ends), free(wanted_ends), free(names), free(values), free(wanted);
    }
    free(offsets), free(lengths);
}

/* Queue entries that say anything: where records start is inside of the span. */
static void fuzz_span(const uint8_t *data, size_t size) {
    size_t count = size / CONSUME_QUEUE_UNIT_SIZE < 64 ? size / CONSUME_QUEUE_UNIT_SIZE : 64;
    int64_t *starts = room_for(count, 8);
    Span span;
    if (span_of(&span, data, count, starts))
        for (size_t i = 0; i < count; i++) expect(starts[i] >= 0 && starts[i] < span.high - span.low);
    free(starts);
}

/* The fields of a header, as far as they are some: none leaves the buffer, and each is after the one before. */
static void fuzz_fields(const uint8_t *data, size_t size) {
    Pair field;
    for (const uint8_t *p = data, *end = data + size, *from = p; p < end && take_field(&p, end, &field); from = p) {
        expect(p <= end && field.name.p == from + NAME_LENGTH_SIZE);
        expect(p == field.name.p + field.name.length + VALUE_LENGTH_SIZE + field.value.length);
    }
}

/* The strings and numbers of a JSON header: none leaves the buffer, and no text grows when its escapes are read. */
static void fuzz_json_header(const uint8_t *data, size_t size) {
    uint8_t *text = room_for(size, 1);
    Reader r = {data, data + size};
    while (r.p < r.end) {
        const uint8_t *from = r.p;
        Text raw;
        int escapes;
        int64_t number;
        if (take_string(&r, &raw, &escapes)) {
            expect(raw.p == from + 1 && r.p == raw.p + raw.length + 1 && r.p <= r.end);
            int64_t length = unescape(raw, text);
            expect(length <= (int64_t)raw.length && (escapes || length == (int64_t)raw.length));
        } else if (r.p = from, take_number(&r, &number)) expect(number == (int32_t)number);
        else r.p = from, take_mark(&r, ':');
        expect(r.p <= r.end);
        if (r.p == from) r.p++;
    }
    free(text);
}

/* Whether a text lies in a frame. */
static int is_in(Text text, const uint8_t *frame, const uint8_t *end) { return text.p >= frame && text.p + text.length <= end; }

/* Bytes as a frame, also with lengths that fit: what is found of a request lies inside of it. */
static void fuzz_request(const uint8_t *data, size_t size) {
    uint8_t *frame = room_for(size, 1);
    if (size) memcpy(frame, data, size);
    for (int is_fitting = 0; is_fitting < 2; is_fitting++) {
        PlainRequest q;
        if (take_request(frame, size, 1 << 24, 1 << 16, &q)) {
            const uint8_t *end = frame + q.size;
            crc32_of(q.body.p, q.body.length); /* reads each byte */
            expect(q.size <= size && q.body.p + q.body.length == end);
            if (is_pull(&q)) expect(is_in(q.pull.group, frame, end) && is_in(q.pull.topic, frame, end));
            else expect(is_in(q.send.topic, frame, end) && (!q.send.properties.p || is_in(q.send.properties, frame, end)));
        }
        if (size < 9) break;
        put32(frame, (uint32_t)size - 4), put32(frame + 4, (uint32_t)(size - 8 - data[8] % (size - 8)));
    }
    free(frame);
}

/* Bytes as the parts and the values of an answer: its frame is as long as it says. */
static void fuzz_answer(const uint8_t *data, size_t size) {
    Answer a = {.count = size % (MOST_VALUES + 1), .body = {data, (uint32_t)size}};
    size_t each = size / (MOST_VALUES + 1);
    for (size_t i = 0; i <= a.count; i++) {
        a.parts[i] = (Text){data + i * each, (uint32_t)each};
        if (i < a.count && !set_text(a.values + i, a.parts[i])) set_number(a.values + i, each >= 8 ? long_at(a.parts[i].p) : -1);
    }
    uint64_t header = size_of_header(&a);
    uint8_t *frame = room_for(FRAME_HEAD + header + size, 1);
    expect(put_answer(frame, &a, (uint32_t)header) == frame + FRAME_HEAD + header + size);
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *given, size_t size) {
    static int is_ready;
    if (!is_ready) crc32_init(), json_init(), is_ready = 1;
    uint8_t *data = room_for(size, 1);
    if (size) memcpy(data, given, size);
    int64_t *starts, length = (int64_t)size;
    size_t count = fuzz_scan(data, length, &starts);
    fuzz_dispatch(data, length, starts, count);
    fuzz_single(data, length, starts, count);
    fuzz_texts(data, length, starts, count);
    fuzz_properties(data, length, starts, count);
    fuzz_lines(data, length, starts, count, 1536 + 12 * size);
    fuzz_lines(data, length, starts, count, 6000); /* the room ends among the lines */
    fuzz_encode(data, length, starts, count);
    /* Offsets that a caller made up. */
    int64_t wrong[] = {-1, length, length + 1, length / 2, INT64_MAX, INT64_MIN, length - LEAST_RECORD};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fuzz_dispatch(data, length, wrong + i, 1);
        expect(sound_rows(wrong + i, 1, data, length, 0) <= 1);
        fuzz_single(data, length, wrong + i, 1);
        fuzz_texts(data, length, wrong + i, 1);
        fuzz_properties(data, length, wrong + i, 1);
        fuzz_lines(data, length, wrong + i, 1, 6000);
    }
    fuzz_batch(data, size);
    fuzz_plain(data, size);
    fuzz_fields(data, size);
    fuzz_json_header(data, size);
    fuzz_request(data, size);
    fuzz_answer(data, size);
    fuzz_span(data, size);
    expect(crc32_of(data, size) == ~crc32_by_tables(~0u, data, size));
    free(data), free(starts);
    return 0;
}

#ifdef DRIVER
#include <time.h>

static uint64_t state;
static uint64_t chance(void) { state ^= state << 13, state ^= state >> 7, state ^= state << 17; return state; }

enum { MOST_INPUT = 1 << 17 };

static size_t read_file(const char *name, uint8_t **data) {
    FILE *file = fopen(name, "rb");
    if (!file) { perror(name); exit(2); }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    *data = room_for(size, 1);
    if (fread(*data, 1, size, file) != size) exit(2);
    fclose(file);
    return size;
}

/* Take a piece of a seed: from its start, from a record, or from anywhere; often whole records. */
static size_t cut(const uint8_t *seed, size_t have, uint8_t *work) {
    size_t at = 0, size = chance() % 8 ? 100 + chance() % 3000 : chance() % MOST_INPUT;
    if (chance() % 4 == 0) at = chance() % (have + 1);
    else {
        Parts r;
        for (uint64_t steps = chance() % 200; steps && look_at(seed + at, (int64_t)(have - at), &r); steps--) at += r.size;
    }
    if (size > have - at) size = have - at;
    if (chance() % 2) {
        Parts r;
        size_t whole = 0;
        while (look_at(seed + at + whole, (int64_t)(size - whole), &r)) whole += r.size;
        if (whole) size = whole;
    }
    memcpy(work, seed + at, size);
    return size;
}

static size_t change(uint8_t *work, size_t size) {
    static const uint8_t bytes[] = {0, 1, 2, 0x7F, 0x80, 0xFF, 0xED, 0xF4, ' ', '"', '\\', '9'};
    static const uint32_t numbers[] = {0, 1, 91, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x5B000000, 0x0000FFFF};
    for (uint64_t changes = chance() % 8; changes && size; changes--) {
        size_t at = chance() % size;
        switch (chance() % 8) {
            case 0: work[at] ^= (uint8_t)(1 << chance() % 8); break;
            case 1: work[at] = bytes[chance() % sizeof bytes]; break;
            case 2: if (size - at >= 4) memcpy(work + at, numbers + chance() % 8, 4); break;
            case 3: memmove(work + at, work + at + 1, size - at - 1), size--; break;
            case 4: work[at] = (uint8_t)chance(); break;
            case 5: size = at; break;
            case 7: work[size - 1] = bytes[chance() % sizeof bytes]; break;
            case 6: /* a length of two bytes that is a little off */
                if (size - at >= 2) work[at + 1] = (uint8_t)(work[at + 1] + chance() % 5 - 2);
                break;
        }
    }
    return size;
}

int main(int argc, char **argv) {
    if (argc < 4) return fprintf(stderr, "fuzz SECONDS SEED FILE...\n"), 2;
    /* Processor time: how often it runs does not depend on what else the machine does. */
    clock_t until = clock() + atol(argv[1]) * CLOCKS_PER_SEC;
    state = 88172645463325252ull ^ strtoull(argv[2], NULL, 10) * 0x9E3779B97F4A7C15ull;
    int files = argc - 3;
    uint8_t **seeds = room_for((size_t)files, sizeof *seeds), *work = room_for(MOST_INPUT, 1);
    size_t *sizes = room_for((size_t)files, sizeof *sizes);
    for (int i = 0; i < files; i++) sizes[i] = read_file(argv[3 + i], seeds + i);
    long runs = 0;
    for (; runs % 64 || clock() < until; runs++) {
        size_t file = chance() % (uint64_t)files;
        LLVMFuzzerTestOneInput(work, change(work, cut(seeds[file], sizes[file], work)));
    }
    printf("%ld runs\n", runs);
    for (int i = 0; i < files; i++) free(seeds[i]);
    free(seeds), free(sizes), free(work);
    return 0;
}
#endif
