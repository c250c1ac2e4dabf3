/* One pass over a protobuf request before anything is built from it.
 *
 * It checks that the bytes are a message of the schema, counts what they hold, and stops at the first
 * limit that is passed. It allocates nothing; its memory is its stack, of at most MAX_DEPTH frames.
 * `neve_repair` writes the request again with every text in UTF-8. `neve_count_json` counts the values
 * of a JSON document in the same spirit. Called through ctypes (wire_scan.py), so without the GIL.
 */
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#include "wire.h"

/* The kinds, flags and error codes are repeated in wire_scan.py. */
enum { UNKNOWN, VARINT, FIXED32, FIXED64, STRING, BYTES, MESSAGE };
enum { REPEATED = 1, CONTAINER = 2, RECORD = 4, PART = 8, ANY_TEXT = 16 };
enum {
    OK,
    MALFORMED,
    TOO_DEEP,
    TOO_MANY_RECORDS,
    TOO_MANY_CONTAINERS,
    TOO_MANY_PARTS,
    TOO_MANY_RECORD_PARTS,
    TOO_MANY_NUMBERS,
    TOO_MANY_RECORD_NUMBERS,
    TOO_MUCH_REPEATED
};
enum { MAX_GROUP_DEPTH = 100 };
/* Of a tag or a length: protobuf's own parser refuses longer ones, whatever they say. */
enum { MAX_TAG_BYTES = 5 };

typedef struct {
    uint8_t kind;
    uint8_t flags;
    uint16_t message; /* for MESSAGE: which one */
} Field;

typedef struct {
    uint32_t first; /* the message's fields: fields[first + number], number < count */
    uint32_t count;
} Message;

typedef struct {
    const Field *fields;
    const Message *messages;
} Schema;

typedef struct {
    int64_t records, containers, parts, record_parts, numbers, record_numbers;
    int64_t repeated_bytes, depth;
} Limits;

typedef struct {
    int64_t records, containers, parts, numbers;
    int64_t repeated_bytes; /* what containers say, once for each of their records */
    int64_t invalid_texts;
    int64_t unknown_fields;
    int64_t unknown_message, unknown_number; /* the first unknown field: its message and number */
    int64_t error, error_offset;
} Counts;

typedef struct {
    const Schema *schema;
    const Limits *limits;
    Counts *counts;
    const uint8_t *start;
    int64_t owner_parts, owner_numbers; /* of the record, metric, scope or resource being read */
    int64_t member_bytes;               /* its records and containers, read so far */
} Scan;

static int fail(Scan *scan, int error, const uint8_t *where) {
    scan->counts->error = error;
    scan->counts->error_offset = where - scan->start;
    return error;
}

static void note_unknown(Scan *scan, uint32_t message, uint32_t number) {
    Counts *counts = scan->counts;
    if (counts->unknown_fields++ == 0) {
        counts->unknown_message = message;
        counts->unknown_number = number;
    }
}

/* One field as it stands on the wire. */
typedef struct {
    uint32_t number;
    uint32_t wire_type;
    uint64_t value;         /* of a varint or fixed number; of bytes their length; of a group 1 */
    const uint8_t *content; /* behind the tag and the length */
    const uint8_t *next;    /* behind the field */
} Token;

enum { WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_GROUP, WIRE_GROUP_END, WIRE_FIXED32 };

/* Skip a group, which OTLP has none of; return where it ends, or NULL. */
static const uint8_t *skip_group(const uint8_t *p, const uint8_t *end, uint32_t number, int depth);

/* Read the field at p; returns 0 when it is malformed. The end of a group is a field, too. */
static inline int read_field(const uint8_t *p, const uint8_t *end, int group_depth, Token *token) {
    uint64_t tag = 0;
    size_t length = read_varint(p, end, &tag);
    if (!length || length > MAX_TAG_BYTES || tag > UINT32_MAX || (tag >> 3) == 0) return 0;
    p += length;
    token->number = (uint32_t)(tag >> 3);
    token->wire_type = tag & 7;
    token->value = 1;
    token->content = p;
    switch (token->wire_type) {
    case WIRE_VARINT:
        if (!(length = read_varint(p, end, &token->value))) return 0;
        p += length;
        break;
    case WIRE_FIXED64:
        if (end - p < 8) return 0;
        memcpy(&token->value, p, 8);
        p += 8;
        break;
    case WIRE_BYTES:
        if (!(length = read_varint(p, end, &token->value)) || length > MAX_TAG_BYTES) return 0;
        p += length;
        token->content = p;
        if (token->value > (uint64_t)(end - p)) return 0;
        p += token->value;
        break;
    case WIRE_GROUP:
        if (!(p = skip_group(p, end, token->number, group_depth))) return 0;
        break;
    case WIRE_GROUP_END:
        break;
    case WIRE_FIXED32:
        if (end - p < 4) return 0;
        token->value = p[0] | p[1] | p[2] | p[3];
        p += 4;
        break;
    default:
        return 0;
    }
    token->next = p;
    return 1;
}

static const uint8_t *skip_group(const uint8_t *p, const uint8_t *end, uint32_t number, int depth) {
    Token token;
    if (depth <= 0) return NULL;
    for (; p < end; p = token.next) {
        if (!read_field(p, end, depth - 1, &token)) return NULL;
        if (token.wire_type == WIRE_GROUP_END) return token.number == number ? token.next : NULL;
    }
    return NULL;
}

static int count_numbers(Scan *scan, int64_t count, const uint8_t *where) {
    scan->owner_numbers += count;
    scan->counts->numbers += count;
    if (scan->owner_numbers > scan->limits->record_numbers)
        return fail(scan, TOO_MANY_RECORD_NUMBERS, where);
    if (scan->counts->numbers > scan->limits->numbers) return fail(scan, TOO_MANY_NUMBERS, where);
    return OK;
}

static int scan_packed(Scan *scan, int kind, const uint8_t *at, const uint8_t *p,
                       const uint8_t *end) {
    int64_t count = 0;
    if (kind == VARINT) {
        while (p < end) {
            uint64_t value;
            size_t length = read_varint(p, end, &value);
            if (!length) return fail(scan, MALFORMED, p);
            p += length;
            count++;
        }
    } else {
        int width = kind == FIXED64 ? 8 : 4;
        if ((end - p) % width) return fail(scan, MALFORMED, p);
        count = (end - p) / width;
    }
    return count_numbers(scan, count, at);
}

static int count_member(Scan *scan, uint8_t flags, const uint8_t *where) {
    Counts *counts = scan->counts;
    if (flags & RECORD && ++counts->records > scan->limits->records)
        return fail(scan, TOO_MANY_RECORDS, where);
    if (flags & CONTAINER && ++counts->containers > scan->limits->containers)
        return fail(scan, TOO_MANY_CONTAINERS, where);
    if (flags & PART) {
        if (++scan->owner_parts > scan->limits->record_parts)
            return fail(scan, TOO_MANY_RECORD_PARTS, where);
        if (++counts->parts > scan->limits->parts) return fail(scan, TOO_MANY_PARTS, where);
    }
    return OK;
}

static int scan_message(Scan *scan, const uint8_t *p, const uint8_t *end, uint32_t type, int64_t depth);

/* A record, or a resource, scope or metric that holds records. Rows repeat what the latter say. */
static int scan_member(Scan *scan, Field field, const uint8_t *at, Token token, int64_t depth) {
    Counts *counts = scan->counts;
    int64_t parts = scan->owner_parts, numbers = scan->owner_numbers, members = scan->member_bytes;
    int64_t records = counts->records;
    scan->owner_parts = scan->owner_numbers = scan->member_bytes = 0;
    int error = scan_message(scan, token.content, token.next, field.message, depth - 1);
    if (!error && field.flags & CONTAINER) {
        int64_t own_bytes = token.next - token.content - scan->member_bytes;
        counts->repeated_bytes += own_bytes * (counts->records - records);
        if (counts->repeated_bytes > scan->limits->repeated_bytes)
            error = fail(scan, TOO_MUCH_REPEATED, at);
    }
    scan->owner_parts = parts;
    scan->owner_numbers = numbers;
    scan->member_bytes = members + (token.next - at);
    return error;
}

/* A known field of bytes, whose tag stands at `at`: text, bytes, packed numbers or a message. */
static int scan_bytes(Scan *scan, Field field, const uint8_t *at, Token token, int64_t depth) {
    const uint8_t *p = token.content, *end = token.next;
    int error = count_member(scan, field.flags, at);
    if (error) return error;
    switch (field.kind) {
    case STRING:
        if (first_invalid(p, end) != end) scan->counts->invalid_texts++;
        return OK;
    case BYTES:
        return OK;
    case MESSAGE:
        if (depth <= 0) return fail(scan, TOO_DEEP, at);
        if (field.flags & (RECORD | CONTAINER)) return scan_member(scan, field, at, token, depth);
        return scan_message(scan, p, end, field.message, depth - 1);
    default:
        return scan_packed(scan, field.kind, at, p, end);
    }
}

/* Whether a field of the schema may stand on the wire in this form; else it is unknown. */
static inline int fits(Field field, uint32_t wire_type) {
    switch (wire_type) {
    case WIRE_VARINT:
        return field.kind == VARINT;
    case WIRE_FIXED64:
        return field.kind == FIXED64;
    case WIRE_FIXED32:
        return field.kind == FIXED32;
    case WIRE_BYTES:
        return field.kind >= STRING || (field.kind != UNKNOWN && field.flags & REPEATED);
    default:
        return 0;
    }
}

static int scan_message(Scan *scan, const uint8_t *p, const uint8_t *end, uint32_t type, int64_t depth) {
    const Message message = scan->schema->messages[type];
    const Field *fields = scan->schema->fields + message.first;
    uint64_t seen = 0; /* the messages that stand in a field for one */
    Token token;
    for (; p < end; p = token.next) {
        int error = OK;
        if (!read_field(p, end, (int)depth, &token) || token.wire_type == WIRE_GROUP_END)
            return fail(scan, MALFORMED, p);
        Field field = {UNKNOWN, 0, 0};
        if (token.number < message.count) field = fields[token.number];
        if (!fits(field, token.wire_type)) {
            if (token.value) note_unknown(scan, type, token.number);
            error = count_member(scan, PART, p);
        } else if (token.wire_type == WIRE_BYTES) {
            /* A message twice in a field for one is merged, or replaced: work all the same. */
            uint64_t bit = field.kind == MESSAGE && !(field.flags & REPEATED) ? 1ULL << token.number : 0;
            if (seen & bit) error = count_member(scan, PART, p);
            seen |= bit;
            if (!error) error = scan_bytes(scan, field, p, token, depth);
        } else if (field.flags & REPEATED) {
            error = count_numbers(scan, 1, p);
        }
        if (error) return error;
    }
    return OK;
}

/* Check and count a request; returns counts->error. */
int neve_scan(const Schema *schema, uint32_t root, const uint8_t *data, size_t size,
              const Limits *limits, Counts *counts) {
    Scan scan = {schema, limits, counts, data, 0, 0, 0};
    memset(counts, 0, sizeof *counts);
    return scan_message(&scan, data, data + size, root, limits->depth);
}

/* Count the records and containers of a message. Records are skipped; OTLP's messages above them are
 * not nested in themselves, so that the schema bounds the recursion. Records that stand in messages of
 * type t are counted in records[columns[t]], too: of a metric those of its last kind, as protobuf reads
 * it. The kinds are the only fields for one message that have records in them. */
static int64_t count_messages(const Schema *schema, const uint8_t *p, const uint8_t *end, uint32_t type,
                              const uint8_t *columns, int64_t *records) {
    Message message = schema->messages[type];
    int64_t count = 0, of_kind = 0;
    uint32_t kind = 0;
    Token token;
    for (; p < end && read_field(p, end, MAX_GROUP_DEPTH, &token); p = token.next) {
        if (token.wire_type != WIRE_BYTES || token.number >= message.count) continue;
        Field field = schema->fields[message.first + token.number];
        if (field.kind != MESSAGE || (field.flags & PART)) continue;
        if (field.flags & (RECORD | CONTAINER)) count++;
        if (field.flags & RECORD) {
            records[columns[type]]++;
            continue;
        }
        int64_t *column = &records[columns[field.message]], before = *column;
        count += count_messages(schema, token.content, token.next, field.message, columns, records);
        if (field.flags & REPEATED) continue;
        if (kind && kind != token.number) {
            records[columns[schema->fields[message.first + kind].message]] -= of_kind;
            of_kind = 0;
        }
        kind = token.number;
        of_kind += *column - before;
    }
    return count;
}

int64_t neve_count_messages(const Schema *schema, uint32_t root, const uint8_t *data, size_t size,
                            const uint8_t *columns, int64_t *records) {
    return count_messages(schema, data, data + size, root, columns, records);
}

enum { SEEN = 64 };

/* Say where a byte stands: pairs of field number and position among its equals, outermost first.
 * Returns how many pairs were written. */
int neve_locate(const Schema *schema, uint32_t root, const uint8_t *data, size_t size, size_t offset,
                int64_t *pairs, int most) {
    const uint8_t *p = data, *end = data + size, *target = data + offset;
    uint32_t type = root;
    int depth = 0;
    int64_t seen[SEEN] = {0};
    Token token;
    while (p < end && depth < most && read_field(p, end, MAX_GROUP_DEPTH, &token)) {
        int64_t position = token.number < SEEN ? seen[token.number]++ : 0;
        if (target >= token.next) {
            p = token.next;
            continue;
        }
        pairs[2 * depth] = token.number;
        pairs[2 * depth + 1] = position;
        depth++;
        const Message message = schema->messages[type];
        if (token.number >= message.count || token.wire_type != WIRE_BYTES || p == target) break;
        Field field = schema->fields[message.first + token.number];
        if (field.kind != MESSAGE) break;
        type = field.message;
        p = token.content;
        end = token.next;
        memset(seen, 0, sizeof seen);
    }
    return depth;
}

enum { PADDED_LENGTH = 5 };

typedef struct {
    const Schema *schema;
    uint8_t *out; /* NULL: only measure */
    size_t size;
} Repair;

static void put(Repair *repair, const uint8_t *bytes, size_t count) {
    if (repair->out) memcpy(repair->out + repair->size, bytes, count);
    repair->size += count;
}

static void put_varint(Repair *repair, uint64_t value) {
    uint8_t bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7) bytes[count++] = (uint8_t)(value | 0x80);
    bytes[count++] = (uint8_t)value;
    put(repair, bytes, count);
}

/* U+FFFD for each byte that is not part of valid UTF-8; with out == NULL only measured. */
static size_t replaced(const uint8_t *p, const uint8_t *end, uint8_t *out) {
    static const uint8_t replacement[3] = {0xef, 0xbf, 0xbd};
    size_t size = 0;
    while (p < end) {
        const uint8_t *bad = first_invalid(p, end);
        if (out) memcpy(out + size, p, (size_t)(bad - p));
        size += (size_t)(bad - p);
        p = bad;
        if (p < end) {
            if (out) memcpy(out + size, replacement, 3);
            size += 3;
            p++;
        }
    }
    return size;
}

static void repair_message(Repair *repair, const uint8_t *p, const uint8_t *end, uint32_t type);

static void repair_bytes(Repair *repair, uint32_t number, Field field, const uint8_t *p,
                         const uint8_t *end) {
    if (field.kind == STRING && first_invalid(p, end) != end) {
        if (field.flags & ANY_TEXT) {
            /* AnyValue.bytes_value keeps the bytes as they are; `message` holds its number. */
            put_varint(repair, (uint64_t)field.message << 3 | 2);
            put_varint(repair, (uint64_t)(end - p));
            put(repair, p, (size_t)(end - p));
            return;
        }
        size_t size = replaced(p, end, NULL);
        put_varint(repair, (uint64_t)number << 3 | 2);
        put_varint(repair, size);
        if (repair->out) replaced(p, end, repair->out + repair->size);
        repair->size += size;
        return;
    }
    put_varint(repair, (uint64_t)number << 3 | 2);
    if (field.kind != MESSAGE) {
        put_varint(repair, (uint64_t)(end - p));
        put(repair, p, (size_t)(end - p));
        return;
    }
    /* The length is known afterwards; a varint may be longer than it need be. */
    size_t at = repair->size;
    repair->size += PADDED_LENGTH;
    repair_message(repair, p, end, field.message);
    size_t length = repair->size - at - PADDED_LENGTH;
    if (repair->out)
        for (int i = 0; i < PADDED_LENGTH; i++)
            repair->out[at + i] = (uint8_t)(((length >> (7 * i)) & 0x7f) |
                                            (i + 1 < PADDED_LENGTH ? 0x80 : 0));
}

static void repair_message(Repair *repair, const uint8_t *p, const uint8_t *end, uint32_t type) {
    const Message message = repair->schema->messages[type];
    Token token;
    for (; p < end && read_field(p, end, MAX_GROUP_DEPTH, &token); p = token.next) {
        Field field = {UNKNOWN, 0, 0};
        if (token.number < message.count) field = repair->schema->fields[message.first + token.number];
        if (token.wire_type == WIRE_BYTES && (field.kind == STRING || field.kind == MESSAGE))
            repair_bytes(repair, token.number, field, token.content, token.next);
        else
            put(repair, p, (size_t)(token.next - p));
    }
}

/* Write a request that neve_scan accepted again, with every text in UTF-8; returns its size.
 * With out == NULL nothing is written. */
size_t neve_repair(const Schema *schema, uint32_t root, const uint8_t *data, size_t size,
                   uint8_t *out) {
    Repair repair = {schema, out, 0};
    repair_message(&repair, data, data + size, root);
    return repair.size;
}

/* Count the values of a JSON document: brackets and commas outside of strings. It need not be valid. */
int64_t neve_count_json(const uint8_t *data, size_t size) {
    int64_t values = 1;
    const uint8_t *p = data, *end = data + size;
    while (p < end) {
        uint8_t byte = *p++;
        if (byte == '"') {
            while (p < end && *p != '"') p += *p == '\\' ? 2 : 1;
            p++;
        } else if (byte == '{' || byte == '[' || byte == ',') {
            values++;
        }
    }
    return values;
}
