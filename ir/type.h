/* Types: element type, factored shape, sharding. All three are interned; compare ids with ==.
 *
 * A *factor* is a position in a dimension, with a logical and a physical extent (DESIGN §5). Storage is
 * row-major over all factors. A dimension of extent 1 has no factor and prints `1`.
 * Factors of a shape are numbered 0, 1, ... from left to right over all dimensions.
 *
 *     f32[8,128,3.12.64]   dims 3, factors 5: 8 | 128 | 3 12 64
 *
 * A *sharding* says for each factor of a shape which mesh axes split it (major first), and over which
 * axes the value is partial. No axis occurs twice. The shard of a factor with physical extent P split by
 * axes of sizes a, b (major first) at coordinates ca, cb is [ (ca*b+cb) * P/(a*b), ... + P/(a*b) ), cut off at the
 * logical extent: behind it nothing is computed, and what padding holds is never read. */
#ifndef AP_IR_TYPE_H
#define AP_IR_TYPE_H

#include "ir/base/ctx.h"
#include "ir/dtype.h"

#define AP_MAX_RANK 8        /* dimensions */
#define AP_MAX_DIM_FACTORS 4 /* factors of one dimension */
#define AP_MAX_FACTORS 16    /* factors of one value */
#define AP_MAX_AXES 6        /* axes of one mesh, `mb` included */

typedef uint32_t ap_shape;    /* interned; 0 is rank 0 */
typedef uint32_t ap_sharding; /* interned; 0 is "none": states before planned */
typedef uint32_t ap_type;     /* interned; 0 is "no type" */
typedef uint32_t ap_mesh;     /* index into the module's meshes, AP_NONE for none */

typedef struct ap_shape_info {
    uint8_t rank;
    uint8_t nfactors;
    uint8_t first[AP_MAX_RANK + 1]; /* dimension d has factors first[d] .. first[d+1]-1 */
    int64_t logical[AP_MAX_FACTORS];
    int64_t physical[AP_MAX_FACTORS]; /* >= logical; equal unless padded */
} ap_shape_info;

/* An ordered list of mesh axes in one word: nibble i holds axis+1 of the i-th, major first; 0 = none. */
typedef uint32_t ap_axes;

typedef enum ap_partial {
    AP_PARTIAL_SUM,
    AP_PARTIAL_MAX,
    AP_PARTIAL_MIN,
    AP_PARTIAL_COUNT,
} ap_partial;

typedef struct ap_sharding_info {
    ap_mesh mesh;
    uint8_t nfactors;                  /* of the shape that it belongs to */
    uint8_t partial[AP_PARTIAL_COUNT]; /* bit a: partial over axis a */
    ap_axes axes[AP_MAX_FACTORS];
} ap_sharding_info;

typedef struct ap_type_info {
    ap_dtype dtype;
    ap_shape shape;
    ap_sharding sharding;
} ap_type_info;

/* ---- shapes ---- */
/* One factor a dimension (none where extent is 1). rank <= AP_MAX_RANK and extents >= 0 must hold. */
ap_shape ap_shape_of_dims(ap_ctx *ctx, int rank, const int64_t *dims);
ap_shape ap_shape_intern(ap_ctx *ctx, const ap_shape_info *info);
const ap_shape_info *ap_shape_get(const ap_ctx *ctx, ap_shape s);    /* valid as long as ctx */
int64_t ap_shape_dim(const ap_shape_info *s, int d);                 /* logical extent of dimension d */
int64_t ap_shape_count(const ap_shape_info *s);                      /* logical elements, saturating */
int ap_shape_dims(const ap_shape_info *s, int64_t out[AP_MAX_RANK]); /* logical extents; returns rank */
/* The largest shape that any module holds: 2^56 elements, extents of 0 not counted, so that bytes and offsets can be
 * computed. Who makes types from a file asks first. */
#define AP_MAX_ELEMENTS ((int64_t)1 << 56)
bool ap_shape_fits(const ap_shape_info *s);
bool ap_dims_fit(int rank, const int64_t *dim);
bool ap_shape_same_dims(const ap_shape_info *a, const ap_shape_info *b);

/* ---- shardings ---- */
static inline int ap_axes_count(ap_axes a)
{
    int n = 0;
    for (; a; a >>= 4)
        n++;
    return n;
}
static inline int ap_axes_get(ap_axes a, int i)
{
    return (int)((a >> (4 * i)) & 15u) - 1;
}
static inline ap_axes ap_axes_append(ap_axes a, int axis)
{
    return a | (ap_axes)(axis + 1) << (4 * ap_axes_count(a));
}
static inline uint8_t ap_axes_mask(ap_axes a)
{
    uint8_t m = 0;
    for (; a; a >>= 4)
        m |= (uint8_t)(1u << ((a & 15u) - 1));
    return m;
}
ap_sharding ap_sharding_intern(ap_ctx *ctx, const ap_sharding_info *info);
const ap_sharding_info *ap_sharding_get(const ap_ctx *ctx, ap_sharding s);
ap_sharding ap_sharding_replicated(ap_ctx *ctx, ap_mesh mesh, int nfactors);
uint8_t ap_sharding_split_mask(const ap_sharding_info *s);   /* axes that split any factor */
uint8_t ap_sharding_partial_mask(const ap_sharding_info *s); /* axes it is partial over */

/* ---- types ---- */
ap_type ap_type_make(ap_ctx *ctx, ap_dtype dtype, ap_shape shape, ap_sharding sharding);
ap_type_info ap_type_get(const ap_ctx *ctx, ap_type t);
static inline ap_dtype ap_type_dtype(const ap_ctx *ctx, ap_type t)
{
    return ap_type_get(ctx, t).dtype;
}
static inline const ap_shape_info *ap_type_shape(const ap_ctx *ctx, ap_type t)
{
    return ap_shape_get(ctx, ap_type_get(ctx, t).shape);
}
int64_t ap_type_bytes(const ap_ctx *ctx, ap_type t); /* logical elements * element size, saturating */

#endif
