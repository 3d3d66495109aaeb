/* SPDX-License-Identifier: MIT
 *
 * ONNX's TensorProto, as the files of ONNX test data sets hold it: read straight from the protobuf wire format. Fields
 * used: dims 1, data_type 2, float_data 4, int32_data 5, int64_data 7, name 8, raw_data 9, double_data 10, uint64_data
 * 11; refused: segment 3, string_data 6, external data 13 and 14. Others are skipped. */
#include "internal.h"

#include <stdlib.h>

typedef struct wire {
    const uint8_t *at, *end;
} wire;

static bool read_varint(wire *w, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && w->at < w->end; shift += 7) {
        uint8_t b = *w->at++;
        if (shift < 64)
            v |= (uint64_t)(b & 127) << shift;
        if (!(b & 128)) {
            *out = v;
            return true;
        }
    }
    return false;
}

typedef struct field {
    uint32_t number, type; /* type: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes */
    uint64_t value;        /* varint */
    wire bytes;            /* the others */
} field;

static bool read_field(wire *w, field *out)
{
    uint64_t key, length = 0;
    if (!read_varint(w, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX)
        return false;
    out->number = (uint32_t)(key >> 3);
    out->type = (uint32_t)(key & 7);
    if (out->type == 0)
        return read_varint(w, &out->value);
    if (out->type == 1)
        length = 8;
    else if (out->type == 5)
        length = 4;
    else if (out->type != 2 || !read_varint(w, &length))
        return false;
    if (length > (uint64_t)(w->end - w->at))
        return false;
    out->bytes = (wire){w->at, w->at + length};
    w->at += length;
    return true;
}

/* What the fields say before elements are stored. */
typedef struct proto {
    int64_t dim[APRT_MAX_RANK];
    int32_t rank;
    int32_t dtype;
    bool has_raw;
    wire raw;
    const char *refused;
} proto;

static bool add_dims(proto *p, field *f)
{
    wire one = {NULL, NULL};
    wire *w = f->type == 2 ? &f->bytes : &one;
    uint64_t v = f->value;
    if (f->type != 0 && f->type != 2)
        return false;
    while (f->type == 0 || w->at < w->end) {
        if (f->type == 2 && !read_varint(w, &v))
            return false;
        if (p->rank == APRT_MAX_RANK) {
            p->refused = "a tensor of more dimensions than are supported";
            return true;
        }
        p->dim[p->rank++] = (int64_t)v;
        if (f->type == 0)
            break;
    }
    return true;
}

static bool scan(wire w, proto *p, char *name, size_t name_size)
{
    field f;
    while (w.at < w.end) {
        if (!read_field(&w, &f))
            return false;
        if (f.number == 1 && !add_dims(p, &f))
            return false;
        else if (f.number == 2 && f.type == 0)
            p->dtype = f.value <= INT32_MAX ? (int32_t)f.value : 0;
        else if (f.number == 3)
            p->refused = "a tensor in segments is not supported";
        else if (f.number == 6)
            p->refused = "a tensor of strings is not supported";
        else if (f.number == 13 || (f.number == 14 && f.type == 0 && f.value == 1))
            p->refused = "a tensor whose data lies in another file is not supported here";
        else if (f.number == 8 && f.type == 2) {
            size_t n = (size_t)(f.bytes.end - f.bytes.at);
            n = n < name_size ? n : name_size - 1;
            memcpy(name, f.bytes.at, n);
            name[n] = 0;
        } else if (f.number == 9 && f.type == 2) {
            p->has_raw = true;
            p->raw = f.bytes;
        }
    }
    return true;
}

/* The field that holds elements of this type when there is no raw data, and the bytes of one on the wire. */
static uint32_t data_field(int32_t dtype, int *fixed)
{
    *fixed = 0;
    switch (dtype) {
    case APRT_F32:
        *fixed = 4;
        return 4;
    case APRT_F64:
        *fixed = 8;
        return 10;
    case APRT_I64:
        return 7;
    case APRT_U32:
    case APRT_U64:
        return 11;
    default:
        return 5;
    }
}

/* Elements of one field, packed or not; *at counts them. */
static bool add_elements(aprt_tensor *t, int64_t *at, int64_t count, field *f, int fixed)
{
    int32_t size = aprt_dtype_bytes(t->dtype);
    char *out = t->data;
    if (f->type == 0 && !fixed) {
        if (*at == count)
            return false;
        memcpy(out + (*at)++ * size, &f->value, (size_t)size); /* little-endian: the low bytes */
        return true;
    }
    if (f->type != 2 && !(fixed == 4 && f->type == 5) && !(fixed == 8 && f->type == 1))
        return false;
    while (f->bytes.at < f->bytes.end) {
        uint64_t v;
        if (*at == count)
            return false;
        if (fixed) {
            if (f->bytes.end - f->bytes.at < fixed)
                return false;
            memcpy(out + (*at)++ * size, f->bytes.at, (size_t)fixed);
            f->bytes.at += fixed;
        } else {
            if (!read_varint(&f->bytes, &v))
                return false;
            memcpy(out + (*at)++ * size, &v, (size_t)size);
        }
    }
    return true;
}

int aprt_proto_parse(const uint8_t *bytes, size_t size, aprt_tensor *out, aprt_failure *why)
{
    proto p = {0};
    char name[sizeof out->name] = "";
    wire all = {bytes, bytes + size};
    if (size == 0 || !scan(all, &p, name, sizeof name))
        return aprt_fail(why, APRT_ERR_DATA, "neither a .npy file nor an ONNX TensorProto");
    if (p.refused)
        return aprt_fail(why, APRT_ERR_DATA, "%s", p.refused);
    int64_t total;
    if (aprt_dtype_bytes(p.dtype) == 0)
        return aprt_fail(why, APRT_ERR_DATA, "elements of ONNX type %d are not supported", p.dtype);
    if (!aprt_tensor_bytes(p.dtype, p.rank, p.dim, &total))
        return aprt_fail(why, APRT_ERR_DATA, "a tensor of impossible shape");
    /* An element takes at least a byte in the file: refuse what cannot be there before memory is asked for. */
    int64_t count = total / aprt_dtype_bytes(p.dtype), at = 0;
    if (p.has_raw ? total != p.raw.end - p.raw.at : (uint64_t)count > size)
        return aprt_fail(why, APRT_ERR_DATA, "the data does not fit the shape of the tensor");
    int status = aprt_tensor_make(p.dtype, p.rank, p.dim, out, why);
    if (status != APRT_OK)
        return status;
    memcpy(out->name, name, sizeof name);
    if (p.has_raw) {
        memcpy(out->data, p.raw.at, (size_t)total);
        return APRT_OK;
    }
    int fixed;
    uint32_t number = data_field(p.dtype, &fixed);
    field f;
    while (all.at < all.end && read_field(&all, &f))
        if (f.number == number && !add_elements(out, &at, count, &f, fixed))
            return aprt_fail(why, APRT_ERR_DATA, "the data does not fit the shape of the tensor");
    if (at != count)
        return aprt_fail(why, APRT_ERR_DATA, "the tensor has %lld elements, its shape %lld", (long long)at,
                         (long long)count);
    return APRT_OK;
}

static size_t put_varint(uint8_t *out, uint64_t v)
{
    size_t n = 0;
    for (; v >= 128; v >>= 7)
        out[n++] = (uint8_t)(v | 128);
    out[n++] = (uint8_t)v;
    return n;
}

int aprt_proto_write(const char *path, const aprt_port *port, const void *data, aprt_failure *why)
{
    size_t length = strlen(port->name), n = 0;
    int64_t bytes;
    if (!aprt_tensor_bytes(port->dtype, port->rank, port->dim, &bytes))
        return aprt_fail(why, APRT_ERR_BUG, "%s: a tensor of impossible type or shape", path);
    uint8_t *head = malloc(length + 11 * (APRT_MAX_RANK + 4));
    if (!head)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    for (int32_t d = 0; d < port->rank; d++) {
        head[n++] = 1 << 3;
        n += put_varint(head + n, (uint64_t)port->dim[d]);
    }
    head[n++] = 2 << 3;
    n += put_varint(head + n, (uint64_t)port->dtype);
    head[n++] = 8 << 3 | 2;
    n += put_varint(head + n, length);
    memcpy(head + n, port->name, length);
    n += length;
    head[n++] = 9 << 3 | 2;
    n += put_varint(head + n, (uint64_t)bytes);
    int status = aprt_file_write(path, head, n, data, (size_t)bytes, why);
    free(head);
    return status;
}
