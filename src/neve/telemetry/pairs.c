/* Attributes as nearly all senders write them: a key, then a string, an integer or a boolean.
 *
 * Every other pair (doubles, bytes, arrays, maps, no value, fields in another order or twice, unknown
 * fields, texts that are not UTF-8) is marked and left to ptars. Called through ctypes (pairs.py).
 */
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#include "../otlp/wire.h"

/* The kinds are positions of the members of AnyValue, as in values.py. */
enum { OTHER = -1, STRING = 1, INT = 2, BOOL = 4 };
/* Tags: a field's number and its wire type. */
enum { KEY_TAG = 0x0a, VALUE_TAG = 0x12, STRING_TAG = 0x0a, BOOL_TAG = 0x10, INT_TAG = 0x18 };
/* Longer lists are not compared key by key. */
enum { MOST_COMPARED = 64 };

typedef struct {
    const uint8_t *at;
    size_t length;
} Text;

/* Read a field of bytes with this tag, and go behind it. */
static inline int read_text(const uint8_t **p, const uint8_t *end, uint8_t tag, Text *text) {
    if (*p == end || **p != tag) return 0;
    uint64_t length = 0;
    size_t size = read_varint(*p + 1, end, &length);
    /* A length that takes more bytes than it needs may be refused. */
    if (!size || (size > 1 && (*p)[size] == 0) || length > (uint64_t)(end - *p - 1) - size) return 0;
    text->at = *p + 1 + size;
    text->length = (size_t)length;
    *p = text->at + length;
    return 1;
}

static inline int is_utf8(Text text) {
    return first_invalid(text.at, text.at + text.length) == text.at + text.length;
}

/* Read the number behind a tag, which must end the message. */
static inline int read_number(const uint8_t *p, const uint8_t *end, uint64_t *number) {
    size_t size = read_varint(p + 1, end, number);
    /* Parsers differ about the bits beyond 64. */
    return size && p + 1 + size == end && (size < 10 || p[10] <= 1);
}

static size_t write_integer(int64_t number, uint8_t *target) {
    uint8_t digits[20];
    size_t count = 0, length = 0;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        digits[count++] = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0) target[length++] = '-';
    while (count) target[length++] = digits[--count];
    return length;
}

/* Write the text of a value; returns its kind. */
static int write_value(Text value, uint8_t *target, size_t *length) {
    const uint8_t *p = value.at, *end = value.at + value.length;
    if (p == end) return OTHER;
    Text text;
    uint64_t number = 0;
    switch (*p) {
    case STRING_TAG:
        if (!read_text(&p, end, STRING_TAG, &text) || p != end || !is_utf8(text)) return OTHER;
        memcpy(target, text.at, text.length);
        *length = text.length;
        return STRING;
    case INT_TAG:
        if (!read_number(p, end, &number)) return OTHER;
        *length = write_integer((int64_t)number, target);
        return INT;
    case BOOL_TAG:
        if (!read_number(p, end, &number) || number > 1) return OTHER;
        *length = number ? 4 : 5;
        memcpy(target, number ? "true" : "false", *length);
        return BOOL;
    default:
        return OTHER;
    }
}

/* Read pairs; return how many of them are OTHER, whose key and text are left empty.
 *
 * The target of keys needs as many bytes as the pairs have, that of texts twice as many: "false"
 * takes four bytes on the wire, and 20 characters of a number take ten and more. */
int64_t neve_read_pairs(const uint8_t *data, const int32_t *offsets, int64_t count,
                        uint8_t *keys, int32_t *key_offsets, uint8_t *texts, int32_t *text_offsets,
                        int8_t *kinds) {
    int32_t key_end = 0, text_end = 0;
    int64_t others = 0;
    key_offsets[0] = text_offsets[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *p = data + offsets[i], *end = data + offsets[i + 1];
        Text key, value;
        size_t length = 0;
        int kind = OTHER;
        if (read_text(&p, end, KEY_TAG, &key) && read_text(&p, end, VALUE_TAG, &value) && p == end &&
            is_utf8(key))
            kind = write_value(value, texts + text_end, &length);
        if (kind == OTHER) {
            others++;
        } else {
            memcpy(keys + key_end, key.at, key.length);
            key_end += (int32_t)key.length;
            text_end += (int32_t)length;
        }
        key_offsets[i + 1] = key_end;
        text_offsets[i + 1] = text_end;
        kinds[i] = (int8_t)kind;
    }
    return others;
}

/* Return a number that differs for most keys that differ. */
static inline uint64_t sign(const uint8_t *p, size_t length) {
    uint64_t first = 0, last = 0;
    if (length >= 8) {
        memcpy(&first, p, 8);
        memcpy(&last, p + length - 8, 8);
    } else {
        memcpy(&first, p, length);
    }
    return first ^ (last << 23 | last >> 41) ^ length * 0x9e3779b97f4a7c15ULL;
}

/* Tell whether a list may have a key twice. 0: certainly not; 1: it does, or is too long to say. */
int neve_may_repeat_keys(const uint8_t *keys, const int32_t *key_offsets, const int32_t *lists,
                         int64_t count) {
    uint64_t signs[MOST_COMPARED];
    for (int64_t i = 0; i < count; i++) {
        const int32_t *at = key_offsets + lists[i];
        int32_t size = lists[i + 1] - lists[i];
        if (size > MOST_COMPARED) return 1;
        for (int32_t later = 0; later < size; later++) {
            size_t length = (size_t)(at[later + 1] - at[later]);
            signs[later] = sign(keys + at[later], length);
            for (int32_t earlier = 0; earlier < later; earlier++)
                if (signs[earlier] == signs[later] &&
                    (size_t)(at[earlier + 1] - at[earlier]) == length &&
                    !memcmp(keys + at[earlier], keys + at[later], length))
                    return 1;
        }
    }
    return 0;
}
