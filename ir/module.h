/* The graph: a module of meshes, symbols and functions. Nodes and values are 32-bit ids into arrays of
 * the module; passes keep side tables as plain arrays indexed by id and walk in id or block order.
 *
 *     mesh @m = [dp=2, tp=4] ranks 0..7
 *     param @w : f32[768,768] @m[-,tp] data("model.onnx", 1024, 2359296)
 *     func @main(%x: f32[8,768]) -> "y" f32[8,768] {
 *       %0 = contract %x, @w {bk,kn->bn} : f32[8,768]  loc("fc1", "MatMul")
 *       ret %0
 *     }
 *
 * An operand is a value id; the value of a symbol (`@w`) is a value of kind AP_VALUE_SYMBOL whose type is
 * the declared one. Values are defined before use in block order; a body sees the values around it. */
#ifndef AP_IR_MODULE_H
#define AP_IR_MODULE_H

#include "ir/mesh.h"
#include "ir/pool.h"
#include "ir/spec.h"
#include "ir/type.h"

typedef uint32_t ap_value; /* AP_NONE for none */
typedef uint32_t ap_node;
typedef uint32_t ap_block;
typedef uint32_t ap_func;
typedef uint32_t ap_symbol;

typedef enum ap_op {
#define OP(E, ...) AP_OP_##E,
#include "ir/op.def"
#undef OP
    AP_OP_POINTWISE_FIRST_,
    AP_OP_POINTWISE_BASE_ = AP_OP_POINTWISE_FIRST_ - 1,
#define POINTWISE(E, ...) AP_OP_##E,
#include "ir/op/pointwise.def"
#undef POINTWISE
    AP_OP_COUNT
} ap_op;

/* DESIGN §3; local has its own form, ir/local.h */
typedef enum ap_state {
    AP_STATE_IMPORTED,
    AP_STATE_NORMAL,
    AP_STATE_PLANNED,
    AP_STATE_EXPLICIT,
    AP_STATE_COUNT
} ap_state;

/* Where the bytes of a constant or parameter are. File data stays where it is mapped (ap_data_bytes). */
typedef enum ap_data_kind { AP_DATA_NONE, AP_DATA_INLINE, AP_DATA_SPLAT, AP_DATA_FILE } ap_data_kind;

/* A box of a larger tensor: elements start[d] ... of dimension d, as many as the value's type has. */
typedef struct ap_data_part {
    ap_name of; /* what the whole tensor is called */
    uint8_t rank;
    int64_t dim[AP_MAX_RANK], start[AP_MAX_RANK];
} ap_data_part;

typedef struct ap_data {
    ap_data_kind kind;
    ap_dtype dtype;
    const void *bytes; /* INLINE: row-major, little-endian, in the context's arena; SPLAT: one element */
    ap_name file;      /* FILE: path as resolved from the model's folder */
    uint64_t offset;   /* FILE */
    uint64_t size; /* bytes: of all elements (INLINE, FILE; of the whole tensor if this is a part) or of one (SPLAT) */
    const ap_data_part *part; /* FILE: of which tensor this is a part; or NULL */
} ap_data;

typedef enum ap_reduce_kind {
    AP_REDUCE_SUM,
    AP_REDUCE_PROD,
    AP_REDUCE_MAX,
    AP_REDUCE_MIN,
    AP_REDUCE_ARGMAX, /* first on ties; result i64; exactly one reduced letter */
    AP_REDUCE_ARGMIN,
    AP_REDUCE_KIND_COUNT
} ap_reduce_kind;

/* What an update does to the element that it meets. */
typedef enum ap_scatter_kind {
    AP_SCATTER_SET, /* the last one stays, in row-major order of the updates */
    AP_SCATTER_ADD,
    AP_SCATTER_MUL,
    AP_SCATTER_MAX,
    AP_SCATTER_MIN,
    AP_SCATTER_KIND_COUNT
} ap_scatter_kind;

/* Per factor of the operand. whole: the factor passes unchanged. A dimension without factors has no entry.
 * slice: elements start, start+step, ... `count` of them; step may be negative; a factor cut to one element vanishes
 * from the result. pad: lo and hi elements added (both >= 0). */
typedef struct ap_range {
    bool whole;
    int64_t start, count, step;
} ap_range;
typedef struct ap_slice_attr {
    ap_range range[AP_MAX_FACTORS];
} ap_slice_attr;
/* Per dimension of the operand (factors of a padded dimension must be one or none). */
typedef struct ap_pad_attr {
    int64_t lo[AP_MAX_RANK], hi[AP_MAX_RANK];
} ap_pad_attr;

/* Per spatial dimension of a convolution: result i and kernel element k meet in element i*stride + k*dilate - lo of the
 * operand with hole - 1 zeros between its elements, outside of which are zeros; with `flip` the kernel is read from its
 * end. lo and hi may be negative. */
#define AP_MAX_SPATIAL (AP_MAX_RANK - 3)
typedef struct ap_conv_dim {
    int64_t lo, hi, stride, dilate, hole;
    bool flip;
} ap_conv_dim;
typedef struct ap_conv_attr {
    ap_conv_dim dim[AP_MAX_SPATIAL];
} ap_conv_attr;

typedef struct ap_node_info {
    ap_op op;
    uint32_t nin, nout;
    ap_value *in, *out; /* in the module's arena */
    ap_loc loc;
    ap_block block;    /* where it stands; AP_NONE once removed */
    ap_block body;     /* composite: its body; else AP_NONE */
    union {            /* by op */
        ap_spec *spec; /* contract, view, gather */
        struct {
            ap_spec *spec;
            ap_reduce_kind kind;
        } reduce;             /* reduce */
        ap_slice_attr *slice; /* slice */
        ap_pad_attr *pad;     /* pad: operand 1 is the rank-0 fill */
        ap_pool_attr *pool;   /* pool */
        ap_conv_attr *conv;   /* conv */
        struct {
            uint8_t dim;
        } concat; /* concat: dimension of the operands */
        struct {
            uint8_t dim;
        } iota; /* iota: dimension that counts */
        struct {
            ap_spec *spec;
            ap_scatter_kind kind;
        } scatter; /* scatter: base, indices, updates */
        struct {
            uint8_t dim;
            bool largest; /* first; NaN counts as larger than any number */
            int64_t k;
        } topk; /* topk: the dimension has one factor */
        struct {
            uint8_t dim;
            ap_reduce_kind kind; /* sum, prod, max, min */
            bool exclusive, reverse;
        } cumulate; /* cumulate: the dimension has one factor */
        struct {
            int64_t limit;
        } index;           /* index: entries that there are */
        ap_data *constant; /* constant */
        ap_name composite; /* composite: its name */
        struct {
            uint8_t mask;
        } axes; /* collectives and steps: bit per axis */
    } u;
} ap_node_info;

typedef enum ap_value_kind { AP_VALUE_ARGUMENT, AP_VALUE_RESULT, AP_VALUE_SYMBOL } ap_value_kind;

typedef struct ap_value_info {
    ap_type type;
    ap_name name; /* 0: unnamed, printed as a number */
    ap_value_kind kind;
    uint32_t def;   /* node (result), func (argument) or symbol */
    uint32_t index; /* which result or argument */
} ap_value_info;

typedef struct ap_block_info {
    AP_VEC(ap_node) nodes; /* in order; the last is the terminator */
    ap_node parent;        /* the composite that owns it, AP_NONE for a function's body */
    ap_func func;
} ap_block_info;

/* A *slot* is a boundary value of a pipeline (ir/pipeline.h): it lies in device memory, each rank holds its own shard,
 * compact, and the instruction list moves it. Result `slot "h"` of one stage feeds argument `slot %h` of others. Slots
 * and outputs of the model are named apart: a value may be both. */
typedef struct ap_func_info {
    ap_name name;
    ap_block body;
    uint32_t narguments, nresults;
    ap_value *argument;
    bool *argument_slot;
    ap_type *result;      /* types of the results; equal those of the values returned */
    ap_name *result_name; /* ONNX output names, or 0; a slot has one always */
    bool *result_slot;
} ap_func_info;

typedef enum ap_symbol_kind { AP_SYMBOL_PARAM, AP_SYMBOL_STATE, AP_SYMBOL_ACCUM, AP_SYMBOL_KIND_COUNT } ap_symbol_kind;

typedef struct ap_symbol_info {
    ap_symbol_kind kind;
    ap_name name;
    ap_value value; /* its type is the declared one */
    ap_data data;   /* params: initial contents; kind NONE if none */
    ap_loc loc;
} ap_symbol_info;

typedef struct ap_module {
    ap_ctx *ctx; /* borrowed */
    ap_arena *arena;
    ap_state state;
    ap_name folder; /* where relative data files are looked up */
    AP_VEC(ap_mesh_info) meshes;
    AP_VEC(ap_symbol_info) symbols;
    AP_VEC(ap_func_info) funcs;
    AP_VEC(ap_block_info) blocks;
    AP_VEC(ap_node_info) nodes;
    AP_VEC(ap_value_info) values;
} ap_module;

ap_module *ap_module_create(ap_ctx *ctx); /* in the context's arena */

/* Pointers returned by these are valid until the next node or value is added. */
static inline ap_node_info *ap_node_at(const ap_module *m, ap_node n)
{
    return &m->nodes.at[n];
}
static inline ap_value_info *ap_value_at(const ap_module *m, ap_value v)
{
    return &m->values.at[v];
}
static inline ap_block_info *ap_block_at(const ap_module *m, ap_block b)
{
    return &m->blocks.at[b];
}
static inline ap_type ap_value_type(const ap_module *m, ap_value v)
{
    return m->values.at[v].type;
}
static inline const ap_shape_info *ap_value_shape(const ap_module *m, ap_value v)
{
    return ap_type_shape(m->ctx, m->values.at[v].type);
}

/* ---- building ---- */
ap_symbol ap_module_add_symbol(ap_module *m, ap_symbol_kind kind, ap_name name, ap_type type, ap_data data, ap_loc loc);
ap_mesh ap_module_add_mesh(ap_module *m, const ap_mesh_info *info);
ap_func ap_module_add_func(ap_module *m, ap_name name);
ap_value ap_func_add_argument(ap_module *m, ap_func f, ap_name name, ap_type type);
ap_value ap_func_add_slot(ap_module *m, ap_func f, ap_name name, ap_type type);
/* No result is a slot until result_slot says so. */
void ap_func_set_results(ap_module *m, ap_func f, uint32_t n, const ap_type *types, const ap_name *names);
ap_block ap_module_add_block(ap_module *m, ap_func f, ap_node parent);

/* A node that is not yet in a block, with `nout` fresh unnamed results of type 0 (set u, then infer). */
ap_node ap_module_add_node(ap_module *m, ap_op op, uint32_t nin, const ap_value *in, uint32_t nout, ap_loc loc);
void ap_block_append(ap_module *m, ap_block b, ap_node n);
void ap_block_insert(ap_module *m, ap_block b, uint32_t at, ap_node n);

/* add_node + append + infer for the common case of one result; `type` 0 means infer it (see ir/op.h). */
ap_status ap_module_emit(ap_module *m, ap_block b, ap_op op, uint32_t nin, const ap_value *in, ap_loc loc,
                         const ap_node_info *attributes, ap_type type, ap_value *out);

/* ---- walking and changing ---- */
/* Replaces operand `from` by `to` in every node of the module, terminators and bodies included. */
void ap_module_replace_uses(ap_module *m, ap_value from, ap_value to);
/* The same within one block and the bodies in it. */
void ap_block_replace_uses(ap_module *m, ap_block b, ap_value from, ap_value to);
/* Takes every reshard out of a block and the bodies in it; what read one reads its operand. */
void ap_block_drop_reshards(ap_module *m, ap_block b);
/* Number of operand slots that hold each value: array indexed by value, in `arena`. */
uint32_t *ap_module_count_uses(const ap_module *m, ap_arena *arena);
/* Removes nodes (not terminators) none of whose results is used, to a fixpoint, and unused symbols. Node and value
 * ids stay; removed nodes have block AP_NONE; removed symbols have kind AP_SYMBOL_KIND_COUNT. */
void ap_module_remove_dead(ap_module *m);
/* The node `n` once more, for other operands and results: attributes are copied, it stands in no block. No body. */
ap_node ap_module_copy_node(ap_module *m, ap_node n);
/* The node `n` of `from`, a module of the same context, with its body, at the end of block `b`. `map` says for every
 * value of `from` that the node reads what it is in `m`; what it makes is entered there. */
ap_node ap_module_import_node(ap_module *m, ap_block b, const ap_module *from, ap_node n, ap_value *map);
/* Deep copy into a new module of the same context (ids may be renumbered densely). */
ap_module *ap_module_clone(const ap_module *m);
ap_module *ap_module_clone_in(const ap_module *m, ap_arena *arena);
ap_symbol ap_module_find_symbol(const ap_module *m, const char *name); /* AP_NONE */

/* The bytes of `d`, mapped on demand (kept mapped by the context); for SPLAT one element.
 * AP_ERR_ENV when the file is missing or shorter than offset + size. */
ap_status ap_data_bytes(ap_module *m, const ap_data *d, ap_loc loc, const void **out);
/* Of FILE data: the path and size of the file, which is mapped on demand. */
ap_status ap_data_where(ap_module *m, const ap_data *d, const char **out_path, uint64_t *out_size);
/* The size that `d` must have for a value of type `t`; -1 if it is a part that such a value does not fit into. */
int64_t ap_data_size(const ap_ctx *ctx, const ap_data *d, ap_type t);

#endif
