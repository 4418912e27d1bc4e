/* Entries of an index file, hung into the chains of its slots as IndexFile.putKey does one by one. */

typedef struct { const int32_t *hashes; const int64_t *places, *times; size_t count; } Keys;

/* Make the entries from number ``first`` on and change the slots; return how many of those were empty. A slot that names
 * an entry which is not there yet is empty. ``begin_time`` is the header's, which the very first entry sets. */
static int64_t hang_in(uint8_t *entries, uint8_t *slots, uint32_t slot_count, Keys keys, int32_t first, int64_t begin_time) {
    enum { AHEAD = 16, SECOND = 1000 };
    int64_t taken = 0;
    for (size_t i = 0; i < keys.count; i++) {
        if (i + AHEAD < keys.count) /* slots are all over the table: one comes while others are written */
            __builtin_prefetch(slots + INDEX_SLOT_SIZE * ((uint32_t)keys.hashes[i + AHEAD] % slot_count), 1);
        uint32_t hash = (uint32_t)keys.hashes[i];
        uint8_t *slot = slots + (size_t)INDEX_SLOT_SIZE * (hash % slot_count), *entry = entries + INDEX_ENTRY_SIZE * i;
        int32_t head = int_at(slot), number = first + (int32_t)i;
        if (head <= 0 || head > number) head = 0;
        taken += head == 0;
        int64_t seconds = begin_time > 0 ? (int64_t)((uint64_t)keys.times[i] - (uint64_t)begin_time) / SECOND : 0;
        put32(entry + INDEX_ENTRY_AT_KEY_HASH, hash);
        put64(entry + INDEX_ENTRY_AT_PHY_OFFSET, (uint64_t)keys.places[i]);
        put32(entry + INDEX_ENTRY_AT_TIME_DIFF, (uint32_t)(seconds < 0 ? 0 : seconds > INT32_MAX ? INT32_MAX : seconds));
        put32(entry + INDEX_ENTRY_AT_PREV_INDEX, (uint32_t)head);
        put32(slot, (uint32_t)number);
        if (number == 1) begin_time = keys.times[0];
    }
    return taken;
}
