/* The scan that runs over a mapped protobuf file before protobuf-c does.
 *
 * It checks what protobuf-c does not (nesting depth, wire types, lengths, with a message that says where the
 * file breaks), reads files of any size, and writes a small copy of the message in which tensor contents
 * are notes: `raw_data`, and large packed `float_data` and `double_data` (the same bytes on the wire), are
 * replaced by a `raw_data` of AP_PRESCAN_NOTE bytes that says where they are in the file. So weights are
 * never copied, and stay in the page cache. */
#ifndef AP_FRONTEND_PRESCAN_H
#define AP_FRONTEND_PRESCAN_H

#include "ir/base/ctx.h"

#include <protobuf-c/protobuf-c.h>

#define AP_PRESCAN_DEPTH 100 /* messages within messages */
#define AP_PRESCAN_NOTE 16

typedef struct ap_prescan {
    const uint8_t *small; /* the rewritten message, in ctx->scratch */
    size_t size;
} ap_prescan;

typedef struct ap_prescan_note {
    uint64_t offset; /* in the file */
    uint64_t size;   /* bytes */
    uint8_t field;   /* of TensorProto: 9 raw_data, 4 float_data, 10 double_data */
} ap_prescan_note;

/* `what` names the kind of file for messages ("ONNX model"). */
ap_status ap_prescan_run(ap_ctx *ctx, const uint8_t *data, uint64_t size, const ProtobufCMessageDescriptor *root,
                         const char *what, ap_loc loc, ap_prescan *out);
ap_prescan_note ap_prescan_note_read(const ProtobufCBinaryData *raw);

/* Unpacks the small message into ctx->scratch; never NULL when AP_OK. */
ap_status ap_prescan_unpack(ap_ctx *ctx, const ap_prescan *scan, const ProtobufCMessageDescriptor *root,
                            const char *what, ap_loc loc, ProtobufCMessage **out);

#endif
