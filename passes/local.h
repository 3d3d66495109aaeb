/* Inside ap_lower_local (passes/local*.c): explicit -> local. docs/local.md tells the story.
 *
 *   module block -> items (local_flatten.c) -> groups (local_fuse.c) -> instructions, one or a few per group
 *       (local_rows.c and local_nest.c, local_gemm.c, local_exchange.c) -> arena offsets (local_arena.c)
 *
 * A value is a *root*, which lives at a place, or a renaming of one: views and composite results are only maps
 * between factors. Extents are always local ones, the same on all ranks; where a factor is padded, a count says how
 * many of its elements a rank has, and loops run over these. */
#ifndef AP_PASSES_LOCAL_H
#define AP_PASSES_LOCAL_H

#include "ir/op.h"
#include "passes/pass.h"

/* So many terms of floats are added up one by one; longer sums are folded in double precision. */
#define AP_LOW_MAX_TERMS 4096

/* Where a value lies: its first element, and the distance in elements between neighbours along each factor. While
 * lowering, ref.index of space ARENA is the buffer; local_arena.c turns it into a byte offset. */
typedef struct ap_low_place {
    ap_ref ref;
    int64_t stride[AP_MAX_FACTORS];
} ap_low_place;

typedef struct ap_low_buffer {
    int64_t bytes, offset;
    uint32_t first, last; /* instructions; first == AP_NONE: never used */
    uint32_t into;        /* lies in this other one (local_reuse.c), AP_NONE: by itself */
} ap_low_buffer;

typedef enum ap_low_source {
    AP_LOW_MEMORY, /* argument, symbol, or result of an item */
    AP_LOW_SPLAT,  /* one number everywhere */
    AP_LOW_IOTA,   /* an index; `item` is AP_NONE and `node` the iota */
} ap_low_source;

typedef struct ap_low_value {
    ap_value root;              /* itself, or the value that it renames */
    int8_t map[AP_MAX_FACTORS]; /* per factor of the root: factor of this value; other factors are broadcast */
    uint8_t nfactors;
    int64_t extent[AP_MAX_FACTORS];
    ap_int count[AP_MAX_FACTORS]; /* hi 0: all of extent */
    /* roots only */
    ap_low_source source;
    ap_scalar splat;
    ap_node iota;
    uint32_t item; /* that computes it, AP_NONE for arguments, symbols and sources */
    uint32_t nuses, first_use;
    uint32_t channels; /* factors that lie innermost (local_layout.c); 0: in order */
    bool torn, tidy;   /* early only (local_room.c): wanted in several orders; in its own buffer, in a known one */
    bool placed;
    bool owned;  /* alone in a fresh buffer */
    bool direct; /* computed straight into the place of a function result, by one of the ranks along `replicated` */
    uint8_t replicated;
    ap_low_place place;
} ap_low_value;

typedef enum ap_low_class {
    AP_LOW_POINTWISE, /* these five are elements of loop nests */
    AP_LOW_REDUCE,
    AP_LOW_GATHER,
    AP_LOW_INDEX,
    AP_LOW_MASK,
    AP_LOW_CONTRACT, /* from here to POOL: kernels that compute one result */
    AP_LOW_SCATTER,
    AP_LOW_CUMULATE,
    AP_LOW_CONV,
    AP_LOW_POOL,
    AP_LOW_CONCAT,
    AP_LOW_PAD,
    AP_LOW_TOPK,
    AP_LOW_EXCHANGE,
    AP_LOW_PART,    /* slice, all_slice: a place inside another */
    AP_LOW_RESHAPE, /* the same bytes read as another shape */
    AP_LOW_RETURN,
} ap_low_class;

/* One node that asks for work (or for memory), in order of execution; composites are inlined. */
typedef struct ap_low_item {
    ap_low_class kind;
    ap_node node;
    ap_name label; /* of the composite around it, or 0 */
    ap_loc loc;
    ap_node unit; /* the outermost composite around it, AP_NONE without */
    uint32_t group;
} ap_low_item;

typedef struct ap_low_member {
    uint32_t item;
    int8_t loop[AP_MAX_FACTORS]; /* of the factors of the result (reduce: of the operand) */
} ap_low_member;

/* Items that become one nest, or one other item. Members with reduced loops are inner, the others row values. */
typedef struct ap_low_group {
    bool nest;
    bool across; /* reduces other than trailing factors: rows lie across memory, and no lookup may join, */
    bool folds;  /* unless this is set: one sum of what is computed element by element */
    bool has_inner, emitted, busy;
    uint32_t into; /* merged away: the group that took it, else AP_NONE */
    /* 1 + the group that follows this product tile by tile; 1 + the product that this group follows. 0: none */
    uint32_t followed_by, follows;
    uint32_t stamp;
    uint8_t nloops;
    int64_t extent[AP_MAX_LOOPS];
    ap_int count[AP_MAX_LOOPS];
    bool inner[AP_MAX_LOOPS];
    AP_VEC(ap_low_member) members; /* by item */
} ap_low_group;

typedef struct ap_low_use {
    uint32_t item;
    uint32_t operand;
} ap_low_use;

/* Buffers by the value that owns them, while every item is a step of its own or a member of a kernel (local_thrift.c).
 */
typedef struct ap_low_thrift {
    int64_t *live;          /* [item]: bytes */
    int64_t *bytes;         /* [value]: of its buffer; 0: none */
    uint32_t *first, *last; /* [value]: items between which it lives, both included */
} ap_low_thrift;

typedef struct ap_low {
    ap_ctx *ctx;
    ap_arena *scratch;
    ap_module *m;
    ap_func func;
    ap_local *p;
    ap_mesh_info mesh; /* naxes 0 without one */
    ap_lower_options options;
    ap_low_value *value;
    AP_VEC(ap_low_item) items;
    AP_VEC(ap_low_group) groups;
    ap_low_use *use; /* by root: use[first_use ... first_use+nuses) */
    AP_VEC(ap_low_buffer) buffers;
    AP_VEC(uint64_t) kernel_hash;
    AP_VEC(const char *) kernel_key; /* binary, of kernel_key_size bytes */
    AP_VEC(size_t) kernel_key_size;
    uint32_t stamp;
    bool in_parts;         /* operands of concat are computed in their part of the result */
    uint32_t nparts;       /* that are */
    bool early;            /* before planning or with reshards: a reshard is its operand, extents are logical ones */
    bool unpacked;         /* operands of products are read as they lie, however slow that is */
    ap_low_thrift *thrift; /* memory by item while kernels are fused; NULL: nobody counts */
} ap_low;

/* ---- local.c ---- */
ap_status ap_low_bug(ap_low *low, ap_loc loc, const char *what);
/* Executes the group of the item and, before it, whatever it needs. */
ap_status ap_low_emit_group(ap_low *low, uint32_t group);

/* ---- local_flatten.c: block -> items, roots, uses ---- */
ap_status ap_low_flatten(ap_low *low);
static inline ap_value ap_low_root(const ap_low *low, ap_value v)
{
    return low->value[v].root;
}
/* Operand `k` of the item is read element by element in a nest (gather's data is not). */
bool ap_low_use_is_element(const ap_low_item *it, uint32_t k);
static inline ap_value ap_low_result(const ap_low *low, const ap_low_item *it)
{
    return ap_node_at(low->m, it->node)->out[0];
}

/* ---- local_places.c: where values lie ---- */
/* A factor that these axes split: places for a whole shard, and how many of them hold something. A factor that nothing
 * splits has its logical extent. False when the axes do not divide it. */
bool ap_low_split(const ap_low *low, const ap_shape_info *s, int f, ap_axes axes, int64_t *extent, ap_int *count);
bool ap_low_extents(const ap_low *low, ap_type t, int64_t extent[AP_MAX_FACTORS], ap_int count[AP_MAX_FACTORS]);
static inline bool ap_low_varies(const ap_int *count)
{
    return count->hi != 0;
}
/* The count of a factor and of `times` elements inside each of its own. */
ap_int ap_low_count_times(const ap_int *count, int64_t times);
/* Row-major strides and the number of elements; false on overflow. */
bool ap_low_compact(int n, const int64_t *extent, int64_t *stride, int64_t *out_count);
/* Index of the first element of the shard along each factor, relative to the whole. */
void ap_low_shard_start(const ap_low *low, const ap_sharding_info *s, const int64_t *extent, int factor,
                        ap_affine *out);
void ap_low_affine_add(ap_affine *a, const ap_affine *b, int64_t times);
/* Places of arguments, params, results of the function, and of what is made from other places. Sources are written to
 * memory on first use, operands of reshapes copied where they are not contiguous. */
ap_status ap_low_place_of(ap_low *low, ap_value v, ap_low_place *out);
/* Where to compute a root: the caller's output, a part of a concatenation, or a fresh buffer. */
ap_status ap_low_destination(ap_low *low, ap_value root, ap_low_place *out);
ap_status ap_low_new_buffer(ap_low *low, ap_dtype dtype, int64_t count, ap_loc loc, uint32_t *out);
ap_status ap_low_fresh(ap_low *low, ap_dtype dtype, int n, const int64_t *extent, ap_loc loc, ap_low_place *out);
/* Part of the result of a concatenation that its k-th operand fills. */
ap_status ap_low_concat_part(ap_low *low, const ap_low_item *it, uint32_t k, const ap_low_place *whole,
                             ap_low_place *out);
/* Result i of the function in the caller's tensor, seen as the returned value; the axes over which it is replicated. */
ap_status ap_low_output(ap_low *low, uint32_t i, ap_low_place *out, uint8_t *out_replicated);

/* ---- local_nest.c: loop nests as they grow ---- */
typedef struct ap_low_operand {
    ap_ref ref;
    ap_dtype dtype;
    bool written;
    int64_t stride[AP_MAX_LOOPS];
} ap_low_operand;

typedef struct ap_low_nest {
    ap_low *low;
    uint8_t nloops;
    int64_t extent[AP_MAX_LOOPS];
    ap_int count[AP_MAX_LOOPS];
    bool inner[AP_MAX_LOOPS];
    AP_VEC(ap_sop) sops;
    AP_VEC(ap_low_operand) operands;
    AP_VEC(ap_int) ints;
    uint8_t nsections; /* the current one is the last */
    bool section_inner[16];
    bool ordered;        /* outer loops stay in the order in which they were added: something is updated in it */
    bool unjoined;       /* and remain loops of their own: one turn reads what the one before wrote */
    const ap_topk *topk; /* no operations: the first k of a row */
    uint8_t ntemps;
    ap_dtype temp_dtype[8];
} ap_low_nest;

void ap_low_nest_init(ap_low *low, ap_low_nest *n);
uint8_t ap_low_nest_loop(ap_low_nest *n, int64_t extent, const ap_int *count, bool inner);
/* Opens a section in place of the current one when that is empty. */
void ap_low_nest_section(ap_low_nest *n, bool inner);
uint32_t ap_low_nest_operand(ap_low_nest *n, const ap_ref *ref, ap_dtype dtype, bool written, const int64_t *stride);
uint32_t ap_low_nest_int(ap_low_nest *n, const ap_affine *a);
/* Equal operations of one section are shared. */
uint32_t ap_low_nest_add(ap_low_nest *n, ap_sop sop);
uint32_t ap_low_nest_load(ap_low_nest *n, const ap_ref *ref, ap_dtype dtype, const int64_t *stride);
void ap_low_nest_store(ap_low_nest *n, const ap_ref *ref, ap_dtype dtype, const int64_t *stride, uint32_t value);
uint32_t ap_low_nest_const(ap_low_nest *n, ap_dtype dtype, ap_scalar x);
uint32_t ap_low_nest_pointwise(ap_low_nest *n, ap_pointwise pw, ap_dtype dtype, int nin, const uint32_t *arg);
/* Index `arg` into `limit` entries, checked and made non-negative. */
uint32_t ap_low_nest_check(ap_low_nest *n, uint32_t arg, int64_t limit);
/* What a call says besides its kernel. */
typedef struct ap_low_call {
    const char *name; /* of a kernel made for it: a C identifier */
    const char *about;
    ap_loc loc;
    ap_when when;
    uint8_t when_mask;
} ap_low_call;
/* Orders and joins loops, finds or makes the kernel, appends the call. Nests without iterations vanish. */
ap_status ap_low_nest_finish(ap_low_nest *n, const ap_low_call *call);
/* dst[...] = src[...] over n factors. */
ap_status ap_low_copy(ap_low *low, ap_dtype dtype, int n, const int64_t *extent, const ap_int *count,
                      const ap_low_place *src, const ap_low_place *dst, const ap_low_call *call);
/* dst[...] = the rank-0 or splat value v. */
ap_status ap_low_fill(ap_low *low, ap_value v, int n, const int64_t *extent, const ap_int *count,
                      const ap_low_place *dst, const ap_low_call *call);
ap_status ap_low_iota(ap_low *low, ap_value root, const ap_low_place *dst, const ap_low_call *call);
/* The index that an iota holds, for loops[f] of its factors (-1: none). */
uint32_t ap_low_nest_iota(ap_low_nest *n, ap_value root, const int8_t *loops);

/* ---- local_fuse.c, local_rows.c ---- */
ap_status ap_low_fuse(ap_low *low);
uint32_t ap_low_group_of(const ap_low *low, uint32_t item);
/* Loops (-1: none) of the factors of the root of operand k, given those of the member. */
void ap_low_operand_loops(const ap_low *low, const ap_low_member *mb, uint32_t k, int8_t out[AP_MAX_FACTORS]);
void ap_low_result_loops(const ap_low *low, const ap_low_member *mb, int8_t out[AP_MAX_FACTORS]);
bool ap_low_has_lookup(const ap_low *low, const ap_low_group *g); /* index or gather */
bool ap_low_group_needs_store(const ap_low *low, uint32_t group, ap_value root);
/* False when the members need more sections than a nest has. */
bool ap_low_stages_fit(ap_low *low, const ap_low_group *g);
ap_status ap_low_emit_nest(ap_low *low, uint32_t group);
/* The group's nest, which nothing needs when it has no operations; to be finished. */
ap_status ap_low_build_nest(ap_low *low, uint32_t group, ap_low_nest *nest, ap_low_call *call);

/* ---- local_thrift.c: no more memory than was planned ---- */
/* Every item is a group; what is alive at each of them. */
void ap_low_thrift_open(ap_low *low);
/* Groups p and c are about to become one kernel. False: the arena would hold more than its limit, or something would
 * have to be computed earlier than it stands; `anyway` it is only counted. Always true where nobody counts. */
bool ap_low_thrift_join(ap_low *low, uint32_t p, uint32_t c, bool anyway);

/* ---- local_epilogue.c ---- */
/* Which groups follow a product: sets followed_by and follows. */
void ap_low_find_followers(ap_low *low);
/* A product and the group that follows it as one call; false in out_done: as two, of which this was the first. */
ap_status ap_low_emit_followed(ap_low *low, uint32_t group, bool *out_done);

/* ---- local_gemm.c, local_exchange.c ---- */
ap_status ap_low_emit_contract(ap_low *low, const ap_low_item *it);
/* The product into C at place `c`, followed by the nest, whose loop[f] is that of factor f of C. Not done, and nothing
 * emitted, where the product is none that a library makes in one step, or the nest cannot be walked by its tiles. */
ap_status ap_low_emit_product_with(ap_low *low, const ap_low_item *it, const ap_low_place *c, const int8_t *loop,
                                   ap_low_nest *nest, const ap_low_call *call, bool *out_done);
/* ---- local_pool.c ---- */
ap_status ap_low_emit_pool(ap_low *low, const ap_low_item *it);

typedef enum ap_low_step { AP_LOW_STEP_NONE, AP_LOW_STEP_SLICE, AP_LOW_STEP_MASK, AP_LOW_STEP_EXCHANGE } ap_low_step;
/* What a change of sharding asks for; AP_ERR_BUG unless it is one elementary step. */
ap_status ap_low_step_kind(ap_low *low, ap_node n, ap_low_step *out);
ap_status ap_low_emit_exchange(ap_low *low, const ap_low_item *it);

/* ---- local_index.c ---- */
ap_status ap_low_emit_scatter(ap_low *low, const ap_low_item *it);
ap_status ap_low_emit_topk(ap_low *low, const ap_low_item *it);
ap_status ap_low_emit_cumulate(ap_low *low, const ap_low_item *it);

/* ---- local_layout.c ---- */
void ap_low_choose_layouts(ap_low *low);
/* Strides of a fresh buffer of the value's n factors, if it has channels. */
void ap_low_order(const ap_low_value *v, int n, const int64_t *extent, int64_t *stride);

/* ---- local_conv.c ---- */
/* Pointwise items that a convolution does on its way, in order: members of its group. */
void ap_low_absorb_steps(ap_low *low, uint32_t item, ap_low_group *g);
ap_status ap_low_emit_conv(ap_low *low, const ap_low_group *g);

/* ---- local_kernels.c ---- */
/* Index of a kernel that equals k in all but name and about; k is added under a fresh name if there is none. */
ap_status ap_low_kernel(ap_low *low, const ap_kernel *k, const ap_low_call *call, uint32_t *out);
void ap_low_call_append(ap_low *low, uint32_t kernel, const ap_low_call *call, uint32_t nrefs, const ap_ref *ref,
                        uint32_t nints, const ap_int *ints);
/* Kernels of several programs get one name where they are the same, and different ones where they are not. */
void ap_low_share_kernels(ap_ctx *ctx, uint32_t nstages, ap_local *const *stage);
/* "contract {bk,kn->bn}: f32[8,16] @m[dp,-]" and the like, for `about`. */
const char *ap_low_about(ap_low *low, const ap_low_item *it);

/* ---- local_panels.c ---- */
/* Parameters as the products that read them want them; all instructions are there. */
ap_status ap_low_panels(ap_low *low);
/* ---- local_prepared.c: weights of convolutions ---- */
void ap_low_prepared(ap_low *low);

/* ---- local_arena.c ---- */
/* Lifetimes, offsets, and the final refs. */
ap_status ap_low_assign_arena(ap_low *low);

/* ---- local_reuse.c ---- */
/* Given the lives of buffers: results take the places of operands that die where they are made, by `into`. */
void ap_low_reuse(ap_low *low);
uint32_t ap_low_buffer_of(const ap_low *low, uint32_t buffer);

#endif
