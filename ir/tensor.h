/* A tensor in the compiler's own memory: for the evaluator, folding and tests, not for speed. */
#ifndef AP_IR_TENSOR_H
#define AP_IR_TENSOR_H

#include "ir/mesh.h"
#include "ir/pointwise.h"
#include "ir/type.h"

typedef struct ap_tensor {
    ap_dtype dtype;
    ap_shape_info shape; /* factored; of a shard: its local shape. Nothing is padded here: physical is logical */
    int64_t count;
    ap_scalar *at; /* row-major over factors; floats in .f, others in .i */
} ap_tensor;

/* Zero-filled, of the logical extents. False when the size overflows or exceeds 2^31 elements. */
bool ap_tensor_make(ap_arena *arena, ap_dtype dtype, const ap_shape_info *shape, ap_tensor *out);
void ap_tensor_from_bytes(ap_tensor *t, const void *bytes); /* row-major, little-endian, t->count elements */
void ap_tensor_to_bytes(const ap_tensor *t, void *bytes);

/* The shard of `whole`, whose type says `shape`, on the rank with the given coordinates, and its reverse. Partial
 * values: see eval.h. */
bool ap_tensor_shard(ap_arena *arena, const ap_tensor *whole, const ap_mesh_info *mesh, const ap_shape_info *shape,
                     const ap_sharding_info *sharding, const int32_t *coords, ap_tensor *out);

#endif
