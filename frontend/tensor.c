/* What a TensorProto may hold, and where: exactly one of raw bytes in the model file, an external file, or
 * the typed field that belongs to its element type. */
#include "frontend/tensor.h"

#include "frontend/external.h"
#include "frontend/prescan.h"
#include "ir/base/file.h"
#include "ir/base/text.h"

#include <inttypes.h>
#include <string.h>

const char *ap_onnx_dtype_str(int onnx)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&onnx__tensor_proto__data_type__descriptor, onnx);
    return v ? v->name : NULL;
}

ap_onnx_source ap_onnx_source_make(ap_ctx *ctx, const char *path, bool weights_absent)
{
    const char *slash = strrchr(path, '/');
    ap_onnx_source src = {.ctx = ctx, .weights_absent = weights_absent};
    src.loc = ap_loc_make(ctx, ap_name_make(ctx, path), 0, 0);
    src.base = ap_name_make(ctx, slash ? slash + 1 : path);
    src.folder = !slash          ? ap_name_make(ctx, ".")
                 : slash == path ? ap_name_make(ctx, "/")
                                 : ap_name_make_n(ctx, path, (size_t)(slash - path));
    return src;
}

static const char *name_of(const Onnx__TensorProto *p)
{
    return p->name ? p->name : "";
}

static ap_status read_dims(const ap_onnx_source *src, const Onnx__TensorProto *p, const char *what, ap_loc loc,
                           ap_onnx_tensor *out)
{
    ap_ctx *ctx = src->ctx;
    if (!ap_dtype_from_onnx(p->data_type, &out->dtype)) {
        const char *s = ap_onnx_dtype_str(p->data_type);
        if (s && p->data_type != 0)
            return ap_error(ctx, loc, "%s \"%s\": element type %s is not supported", what, name_of(p), s);
        return ap_error(ctx, loc, "%s \"%s\": %d is no element type", what, name_of(p), p->data_type);
    }
    if (p->n_dims > AP_MAX_RANK)
        return ap_error(ctx, loc, "%s \"%s\": rank %zu is above %d", what, name_of(p), p->n_dims, AP_MAX_RANK);
    out->rank = (uint8_t)p->n_dims;
    out->count = 1;
    bool empty = false;
    for (size_t d = 0; d < p->n_dims; d++) {
        if (p->dims[d] < 0)
            return ap_error(ctx, loc, "%s \"%s\": dimension %zu is %" PRId64, what, name_of(p), d, p->dims[d]);
        out->dim[d] = p->dims[d];
        empty = empty || p->dims[d] == 0;
    }
    if (!ap_dims_fit(out->rank, out->dim))
        return ap_error(ctx, loc, "%s \"%s\": its dimensions ask for more than 2^56 elements", what, name_of(p));
    for (int d = 0; d < out->rank; d++)
        out->count *= empty ? 0 : out->dim[d];
    return AP_OK;
}

/* The typed fields, as one list of 64-bit patterns. */
typedef struct typed {
    const char *field;
    size_t n;
    int onnx_field;
} typed;

static typed typed_field(const Onnx__TensorProto *p)
{
    const typed all[] = {
        {"float_data", p->n_float_data, 4},    {"int32_data", p->n_int32_data, 5},
        {"int64_data", p->n_int64_data, 7},    {"double_data", p->n_double_data, 10},
        {"uint64_data", p->n_uint64_data, 11}, {"string_data", p->n_string_data, 6},
    };
    typed found = {0};
    int kinds = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].n) {
            found = all[i];
            kinds++;
        }
    if (kinds > 1)
        found.onnx_field = -1;
    return found;
}

static int field_for(ap_dtype t)
{
    switch (t) {
    case AP_F32:
        return 4;
    case AP_I64:
        return 7;
    case AP_F64:
        return 10;
    case AP_U32:
    case AP_U64:
        return 11;
    default:
        return 5;
    }
}

/* Little-endian bytes of element i. */
static void typed_element(const Onnx__TensorProto *p, ap_dtype t, size_t i, uint8_t *to)
{
    int bytes = ap_dtype_bytes(t);
    uint64_t x = 0;
    switch (field_for(t)) {
    case 4:
        memcpy(to, &p->float_data[i], 4);
        return;
    case 10:
        memcpy(to, &p->double_data[i], 8);
        return;
    case 7:
        x = (uint64_t)p->int64_data[i];
        break;
    case 11:
        x = p->uint64_data[i];
        break;
    default:
        x = t == AP_BOOL ? p->int32_data[i] != 0 : (uint64_t)(int64_t)p->int32_data[i];
    }
    for (int b = 0; b < bytes; b++)
        to[b] = (uint8_t)(x >> (8 * b));
}

static ap_status size_mismatch(const ap_onnx_source *src, const Onnx__TensorProto *p, const char *what, ap_loc loc,
                               uint64_t want, uint64_t have, const char *unit)
{
    return ap_error(src->ctx, loc, "%s \"%s\": its dimensions ask for %" PRIu64 " %s, its data has %" PRIu64, what,
                    name_of(p), want, unit, have);
}

static ap_status read_typed(const ap_onnx_source *src, const Onnx__TensorProto *p, const char *what, ap_loc loc,
                            ap_onnx_tensor *out)
{
    typed field = typed_field(p);
    if (field.onnx_field == -1)
        return ap_error(src->ctx, loc, "%s \"%s\": its contents are given twice", what, name_of(p));
    if (field.n && field.onnx_field != field_for(out->dtype))
        return ap_error(src->ctx, loc, "%s \"%s\": %s cannot hold %s", what, name_of(p), field.field,
                        ap_dtype_str(out->dtype));
    if (field.n != (uint64_t)out->count)
        return size_mismatch(src, p, what, loc, (uint64_t)out->count, field.n, "elements");
    size_t bytes = (size_t)ap_dtype_bytes(out->dtype);
    uint8_t *to = ap_arena_calloc(&src->ctx->arena, field.n, bytes);
    for (size_t i = 0; i < field.n; i++)
        typed_element(p, out->dtype, i, to + i * bytes);
    out->data.kind = AP_DATA_INLINE;
    out->data.bytes = to;
    out->data.size = field.n * bytes;
    return AP_OK;
}

static ap_status read_raw(const ap_onnx_source *src, const Onnx__TensorProto *p, const char *what, ap_loc loc,
                          ap_onnx_tensor *out, uint64_t want)
{
    ap_prescan_note note = ap_prescan_note_read(&p->raw_data);
    if (typed_field(p).n)
        return ap_error(src->ctx, loc, "%s \"%s\": its contents are given twice", what, name_of(p));
    if (note.field != 9 && note.field != field_for(out->dtype))
        return ap_error(src->ctx, loc, "%s \"%s\": %s cannot hold %s", what, name_of(p),
                        note.field == 4 ? "float_data" : "double_data", ap_dtype_str(out->dtype));
    if (note.size != want)
        return size_mismatch(src, p, what, loc, want, note.size, "bytes");
    out->data.kind = AP_DATA_FILE;
    out->data.file = src->base;
    out->data.offset = note.offset;
    out->data.size = note.size;
    return AP_OK;
}

ap_status ap_onnx_tensor_read(const ap_onnx_source *src, const Onnx__TensorProto *proto, const char *what, ap_loc loc,
                              ap_onnx_tensor *out)
{
    memset(out, 0, sizeof *out);
    AP_TRY(read_dims(src, proto, what, loc, out));
    out->data.dtype = out->dtype;
    uint64_t want = (uint64_t)out->count * (uint64_t)ap_dtype_bytes(out->dtype);
    if (proto->segment)
        return ap_error(src->ctx, loc, "%s \"%s\": tensors in segments are not supported", what, name_of(proto));
    if (proto->has_data_location && proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return ap_onnx_external_find(src, proto, what, loc, want, &out->data);
    if (proto->has_raw_data)
        return read_raw(src, proto, what, loc, out, want);
    return read_typed(src, proto, what, loc, out);
}

static ap_status load_mapped(ap_ctx *ctx, const char *path, const ap_file *file, ap_arena *arena, ap_tensor *out)
{
    ap_onnx_source src = ap_onnx_source_make(ctx, path, false);
    ap_prescan scan;
    ProtobufCMessage *message;
    const ProtobufCMessageDescriptor *root = &onnx__tensor_proto__descriptor;
    AP_TRY(ap_prescan_run(ctx, file->data, file->size, root, "ONNX tensor", src.loc, &scan));
    AP_TRY(ap_prescan_unpack(ctx, &scan, root, "ONNX tensor", src.loc, &message));
    ap_onnx_tensor t;
    AP_TRY(ap_onnx_tensor_read(&src, (const Onnx__TensorProto *)message, "tensor", src.loc, &t));
    const ap_shape_info *shape = ap_shape_get(ctx, ap_shape_of_dims(ctx, t.rank, t.dim));
    if (!ap_tensor_make(arena, t.dtype, shape, out))
        return ap_error(ctx, src.loc, "a tensor of %" PRId64 " elements is too large to load", t.count);
    const uint8_t *bytes = t.data.bytes;
    if (t.data.kind == AP_DATA_FILE && t.data.file == src.base)
        bytes = file->data + t.data.offset;
    else if (t.data.kind == AP_DATA_FILE)
        return ap_error(ctx, src.loc, "external data is not supported here");
    ap_tensor_from_bytes(out, bytes);
    return AP_OK;
}

ap_status ap_onnx_tensor_load(ap_ctx *ctx, const char *path, ap_arena *arena, ap_tensor *out)
{
    ap_file file;
    AP_TRY(ap_file_map(ctx, path, &file));
    ap_status status = load_mapped(ctx, path, &file, arena, out);
    ap_file_unmap(&file);
    return status;
}
