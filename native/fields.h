/* The fields of a ROCKETMQ header, one after the other: the length of the name (2 bytes), the name, the length of the
 * value (4 bytes), the value. rmqtool/remoting/binary_header.py lays the header out. */

enum { NAME_LENGTH_SIZE = 2, VALUE_LENGTH_SIZE = 4 };

/* Take the field at ``*p`` into ``field`` and move ``*p`` after it. Return 0 where a length leaves the block, or where
 * name or value are no UTF-8. */
static int take_field(const uint8_t **p, const uint8_t *end, Pair *field) {
    size_t left = (size_t)(end - *p);
    if (left < NAME_LENGTH_SIZE) return 0;
    field->name = (Text){*p + NAME_LENGTH_SIZE, be16(*p)};
    left -= NAME_LENGTH_SIZE;
    if (field->name.length + VALUE_LENGTH_SIZE > left) return 0;
    left -= field->name.length + VALUE_LENGTH_SIZE;
    const uint8_t *value = field->name.p + field->name.length + VALUE_LENGTH_SIZE;
    field->value = (Text){value, be32(value - VALUE_LENGTH_SIZE)};
    if (field->value.length > left) return 0; /* a negative length is above every size */
    *p = value + field->value.length;
    return is_utf8(field->name) && is_utf8(field->value);
}
