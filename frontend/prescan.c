/* Walks the wire format with protobuf-c's own descriptors, so there is no second schema.
 *
 * A nested message is written with a length of five bytes, filled in when its end is known. The copy can
 * therefore be a little longer than its source, never by more than four bytes a message. */
#include "frontend/prescan.h"

#include "ir/base/text.h"
#include "onnx.pb-c.h"

#include <inttypes.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
#define LIFT_AT_LEAST 1024 /* bytes of packed floats that are worth a note */
#define LENGTH_BYTES 5

typedef struct scanner {
    ap_ctx *ctx;
    const uint8_t *data;
    ap_loc loc;
    const char *what;
    uint8_t *out;
    size_t len, cap;
    int depth;
    const char *path[AP_PRESCAN_DEPTH + 1]; /* names of the fields that lead here */
    bool recognised;                        /* a known field of the root that holds messages was met */
} scanner;

static const char *path_str(scanner *s, const char *field)
{
    ap_text t;
    ap_text_init(&t, &s->ctx->scratch);
    /* Far down the same names repeat: the first few say enough. */
    for (int i = 0; i < s->depth && i < 8; i++)
        ap_text_addf(&t, "%s%s", i ? "." : "", s->path[i]);
    if (s->depth > 8)
        ap_text_add(&t, "...");
    if (field)
        ap_text_addf(&t, "%s%s", s->depth ? "." : "", field);
    return t.len ? ap_text_str(&t) : "the top level";
}

static ap_status broken(scanner *s, uint64_t at, const char *field, const char *why)
{
    if (!s->recognised)
        return ap_error(s->ctx, s->loc, "this is not an %s (byte %" PRIu64 ": %s)", s->what, at, why);
    return ap_error(s->ctx, s->loc, "the file is damaged at byte %" PRIu64 ", in %s: %s", at, path_str(s, field), why);
}

static ap_status truncated(scanner *s, uint64_t at, const char *field, uint64_t missing)
{
    if (!s->recognised)
        return ap_error(s->ctx, s->loc, "this is not an %s, or it is cut off within the first field", s->what);
    return ap_error(s->ctx, s->loc,
                    "the file is cut off: %s, at byte %" PRIu64 ", announces %" PRIu64 " bytes more than there are",
                    path_str(s, field), at, missing);
}

static void put(scanner *s, const void *p, size_t n)
{
    if (n > s->cap - s->len) {
        size_t cap = s->cap * 2 + n + 4096;
        uint8_t *grown = ap_arena_alloc(&s->ctx->scratch, cap);
        if (s->len)
            memcpy(grown, s->out, s->len);
        s->out = grown;
        s->cap = cap;
    }
    if (n)
        memcpy(s->out + s->len, p, n);
    s->len += n;
}

static void put_varint(scanner *s, uint64_t x)
{
    uint8_t b[10];
    size_t n = 0;
    do {
        b[n++] = (uint8_t)((x & 0x7f) | (x > 0x7f ? 0x80 : 0));
        x >>= 7;
    } while (x);
    put(s, b, n);
}

static void set_length(scanner *s, size_t at, uint64_t x)
{
    for (int i = 0; i < LENGTH_BYTES; i++)
        s->out[at + (size_t)i] = (uint8_t)(((x >> (7 * i)) & 0x7f) | (i + 1 < LENGTH_BYTES ? 0x80 : 0));
}

/* False when it does not end before `end` or is longer than 64 bits. */
static bool get_varint(const uint8_t *data, uint64_t *at, uint64_t end, uint64_t *out)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t b = data[(*at)++];
        x |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = x;
            return shift < 63 || b <= 1;
        }
    }
    return false;
}

static int wire_of(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
        return WIRE_32;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return WIRE_64;
    default:
        return WIRE_VARINT;
    }
}

static bool packed_ok(const uint8_t *data, uint64_t at, uint64_t end, int wire)
{
    if (wire != WIRE_VARINT)
        return (end - at) % (wire == WIRE_32 ? 4 : 8) == 0;
    uint64_t x;
    while (at < end)
        if (!get_varint(data, &at, end, &x))
            return false;
    return true;
}

static void put_note(scanner *s, uint64_t offset, uint64_t size, uint32_t field)
{
    uint8_t b[AP_PRESCAN_NOTE];
    memcpy(b, &offset, 8);
    uint64_t packed = size << 8 | field; /* files are shorter than 2^56 bytes */
    memcpy(b + 8, &packed, 8);
    put_varint(s, 9u << 3 | WIRE_BYTES);
    put_varint(s, AP_PRESCAN_NOTE);
    put(s, b, sizeof b);
}

ap_prescan_note ap_prescan_note_read(const ProtobufCBinaryData *raw)
{
    uint64_t offset = 0, packed = 0;
    memcpy(&offset, raw->data, 8);
    memcpy(&packed, raw->data + 8, 8);
    return (ap_prescan_note){.offset = offset, .size = packed >> 8, .field = (uint8_t)(packed & 0xff)};
}

static bool lifts(const ProtobufCMessageDescriptor *d, uint32_t field, uint64_t size)
{
    if (d != &onnx__tensor_proto__descriptor)
        return false;
    return field == 9 || ((field == 4 || field == 10) && size >= LIFT_AT_LEAST);
}

static ap_status scan_message(scanner *s, const ProtobufCMessageDescriptor *d, uint64_t at, uint64_t end);

static ap_status scan_nested(scanner *s, const ProtobufCFieldDescriptor *f, uint64_t at, uint64_t end)
{
    if (s->depth + 1 >= AP_PRESCAN_DEPTH)
        return broken(s, at, f->name, "messages are nested more than 100 deep");
    put_varint(s, (uint64_t)f->id << 3 | WIRE_BYTES);
    size_t length_at = s->len;
    put(s, "\0\0\0\0\0", LENGTH_BYTES);
    s->path[s->depth++] = f->name;
    AP_TRY(scan_message(s, f->descriptor, at, end));
    s->depth--;
    uint64_t length = s->len - length_at - LENGTH_BYTES;
    if (length > INT32_MAX)
        return broken(s, at, f->name, "more than 2 GiB of data that is not raw tensor contents");
    set_length(s, length_at, length);
    return AP_OK;
}

/* A field with a length. `lifted` counts the tensor contents that this message has given up. */
static ap_status scan_bytes(scanner *s, const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f,
                            uint64_t at, uint64_t end, int *lifted)
{
    int wire = wire_of(f);
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return scan_nested(s, f, at, end);
    if (wire != WIRE_BYTES && !packed_ok(s->data, at, end, wire))
        return broken(s, at, f->name, "the numbers of this list do not fill its length");
    if (lifts(d, f->id, end - at)) {
        if ((*lifted)++)
            return broken(s, at, f->name, "the contents of one tensor are given twice");
        put_note(s, at, end - at, f->id);
        return AP_OK;
    }
    if (end - at > INT32_MAX)
        return broken(s, at, f->name, "a field of more than 2 GiB");
    put_varint(s, (uint64_t)f->id << 3 | WIRE_BYTES);
    put_varint(s, end - at);
    put(s, s->data + at, (size_t)(end - at));
    return AP_OK;
}

static ap_status scan_number(scanner *s, const ProtobufCFieldDescriptor *f, uint32_t wire, uint64_t *at, uint64_t end)
{
    if (f)
        put_varint(s, (uint64_t)f->id << 3 | wire);
    if (wire == WIRE_VARINT) {
        uint64_t x, from = *at;
        if (!get_varint(s->data, at, end, &x))
            return broken(s, from, f ? f->name : NULL, "a number that does not end");
        if (f)
            put_varint(s, x);
        return AP_OK;
    }
    size_t n = wire == WIRE_32 ? 4 : 8;
    if (end - *at < n)
        return truncated(s, *at, f ? f->name : NULL, n - (end - *at));
    if (f)
        put(s, s->data + *at, n);
    *at += n;
    return AP_OK;
}

/* A singular message that comes twice would have to be merged; no writer does that. */
static ap_status check_once(scanner *s, const ProtobufCMessageDescriptor *d, const ProtobufCFieldDescriptor *f,
                            uint64_t at, uint32_t *seen)
{
    if (f->label == PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE)
        return AP_OK;
    uint32_t bit = 1u << ((uint32_t)(f - d->fields) & 31u);
    if (*seen & bit)
        return broken(s, at, f->name, "a field that may stand once stands twice");
    *seen |= bit;
    return AP_OK;
}

static ap_status scan_field(scanner *s, const ProtobufCMessageDescriptor *d, uint64_t *at, uint64_t end, uint32_t *seen,
                            int *lifted)
{
    uint64_t tag, from = *at;
    if (!get_varint(s->data, at, end, &tag) || tag >> 32 || tag >> 3 == 0)
        return broken(s, from, NULL, "no field can start here");
    uint32_t wire = (uint32_t)tag & 7u;
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
    if (wire != WIRE_VARINT && wire != WIRE_64 && wire != WIRE_BYTES && wire != WIRE_32)
        return broken(s, from, f ? f->name : NULL, "unknown wire type");
    bool packed = f && f->label == PROTOBUF_C_LABEL_REPEATED && wire == WIRE_BYTES;
    if (f && wire != (uint32_t)wire_of(f) && !packed)
        return broken(s, from, f->name, "the field has the wrong wire type");
    if (f)
        AP_TRY(check_once(s, d, f, from, seen));
    if (wire != WIRE_BYTES)
        return scan_number(s, f, wire, at, end);
    uint64_t n;
    if (!get_varint(s->data, at, end, &n))
        return broken(s, from, f ? f->name : NULL, "a length that does not end");
    if (s->depth == 0 && f && f->type == PROTOBUF_C_TYPE_MESSAGE)
        s->recognised = true;
    if (n > end - *at)
        return truncated(s, from, f ? f->name : NULL, n - (end - *at));
    uint64_t stop = *at + n;
    if (f)
        AP_TRY(scan_bytes(s, d, f, *at, stop, lifted));
    *at = stop;
    return AP_OK;
}

static ap_status scan_message(scanner *s, const ProtobufCMessageDescriptor *d, uint64_t at, uint64_t end)
{
    uint32_t seen = 0;
    int lifted = 0;
    while (at < end)
        AP_TRY(scan_field(s, d, &at, end, &seen, &lifted));
    return AP_OK;
}

ap_status ap_prescan_run(ap_ctx *ctx, const uint8_t *data, uint64_t size, const ProtobufCMessageDescriptor *root,
                         const char *what, ap_loc loc, ap_prescan *out)
{
    if (size == 0)
        return ap_error(ctx, loc, "this is not an %s: the file is empty", what);
    scanner s = {.ctx = ctx, .data = data, .loc = loc, .what = what};
    s.recognised = root == &onnx__tensor_proto__descriptor;
    AP_TRY(scan_message(&s, root, 0, size));
    if (s.len > INT32_MAX)
        return ap_error(ctx, loc, "more than 2 GiB of data that is not raw tensor contents");
    *out = (ap_prescan){.small = s.out, .size = s.len};
    return AP_OK;
}

static void *bump_alloc(void *user, size_t size)
{
    return ap_arena_alloc(user, size);
}

static void bump_free(void *user, void *p)
{
    (void)user;
    (void)p;
}

ap_status ap_prescan_unpack(ap_ctx *ctx, const ap_prescan *scan, const ProtobufCMessageDescriptor *root,
                            const char *what, ap_loc loc, ProtobufCMessage **out)
{
    ProtobufCAllocator bump = {.alloc = bump_alloc, .free = bump_free, .allocator_data = &ctx->scratch};
    *out = protobuf_c_message_unpack(root, &bump, scan->size, scan->size ? scan->small : (const uint8_t *)"");
    return *out ? AP_OK : ap_error(ctx, loc, "this is not an %s", what);
}
