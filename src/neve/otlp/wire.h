/* Numbers and texts of protobuf's wire format. */
#ifndef NEVE_WIRE_H
#define NEVE_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Return the length of a varint, or 0 when it is cut off or longer than ten bytes. As protobuf's own
 * parsers do, it drops the bits beyond 64 of a tenth byte. */
static size_t read_long_varint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
    uint64_t result = 0;
    for (size_t i = 0; i < 10 && p + i < end; i++) {
        result |= (uint64_t)(p[i] & 0x7f) << (7 * i);
        if (p[i] < 0x80) {
            *value = result;
            return i + 1;
        }
    }
    return 0;
}

static inline size_t read_varint(const uint8_t *p, const uint8_t *end, uint64_t *value) {
    if (p < end && *p < 0x80) {
        *value = *p;
        return 1;
    }
    return read_long_varint(p, end, value);
}

/* Return where the first byte that is not UTF-8 stands; `end` when there is none. RFC 3629. */
static const uint8_t *first_invalid(const uint8_t *p, const uint8_t *end) {
    while (p < end) {
        uint64_t word;
        while (end - p >= 8) {
            memcpy(&word, p, 8);
            if (word & 0x8080808080808080ULL) break;
            p += 8;
        }
        while (p < end && *p < 0x80) p++;
        if (p == end) break;
        uint8_t lead = *p;
        size_t more;
        uint8_t low = 0x80, high = 0xbf;
        if (lead >= 0xc2 && lead <= 0xdf) {
            more = 1;
        } else if (lead >= 0xe0 && lead <= 0xef) {
            more = 2;
            if (lead == 0xe0) low = 0xa0;
            if (lead == 0xed) high = 0x9f;
        } else if (lead >= 0xf0 && lead <= 0xf4) {
            more = 3;
            if (lead == 0xf0) low = 0x90;
            if (lead == 0xf4) high = 0x8f;
        } else {
            return p;
        }
        if ((size_t)(end - p) <= more || p[1] < low || p[1] > high) return p;
        for (size_t i = 2; i <= more; i++)
            if ((p[i] & 0xc0) != 0x80) return p;
        p += more + 1;
    }
    return end;
}

#endif
