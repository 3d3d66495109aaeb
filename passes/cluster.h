/* The machine that a plan is made for (DESIGN §6). Times in picoseconds, sizes in bytes. */
#ifndef AP_PASSES_CLUSTER_H
#define AP_PASSES_CLUSTER_H

#include "ir/local.h"
#include "ir/rule.h"

/* One level of links. What the devices of a unit send out of it (of an island to others of its host, of a host to other
 * hosts) may go through something that they share: a socket's bus, a host's network cards. */
typedef struct ap_level {
    int64_t latency_ps;              /* per step of a collective */
    int64_t bytes_per_second;        /* of one device, each direction */
    int64_t shared_bytes_per_second; /* of all devices of a unit that use it at once; 0: nothing is shared */
} ap_level;

/* A memory that a device reaches. */
typedef struct ap_memory_tier {
    const char *name;
    int64_t bytes, bytes_per_second, latency_ps;
    int32_t shared_by; /* devices */
} ap_memory_tier;
enum { AP_MAX_TIERS = 8, AP_CLUSTER_MAX_DEVICES = 65536 };

/* Products of so many FLOPs reach this part of the peak; between two points it is linear in the logarithm of the FLOPs,
 * outside as at the nearest one. */
typedef struct ap_reached {
    int64_t flops;
    double fraction;
} ap_reached;
enum { AP_MAX_REACHED = 16 };

/* A cache: what was touched again before so many other bytes were comes at this rate. */
typedef struct ap_cache {
    int64_t bytes, bytes_per_second;
} ap_cache;
enum { AP_MAX_CACHES = 4 };

/* What a kernel multiplies: convolutions of windows, of single places (1x1), of each channel by itself. */
typedef enum ap_product_kind {
    AP_PRODUCT_NONE,
    AP_PRODUCT_MATRIX,
    AP_PRODUCT_SPATIAL,
    AP_PRODUCT_POINTWISE,
    AP_PRODUCT_DEPTHWISE,
    AP_PRODUCT_KINDS
} ap_product_kind;

/* What a plan is priced by: predicted time, or what Alpa counts (cost_alpa.c). */
typedef enum ap_cost_model { AP_COST_TIME, AP_COST_ALPA } ap_cost_model;
const char *ap_cost_model_str(ap_cost_model m); /* "time", "alpa" */
bool ap_cost_model_from_str(const char *s, ap_cost_model *out);

/* Hosts with devices. Ranks are numbered host by host, over the groups in order.
 *
 *     inside    between devices of an island           islands of `island` devices each: a socket, an NVLink island
 *     across    between islands of a host
 *     between   between hosts
 *
 * Uniform (ngroups 0): the fields say all. Otherwise `group` lists groups of like hosts, each a uniform cluster, and
 * the fields above them are those of the slowest device and link of all: a plan that spans unlike devices is priced by
 * these. Then hosts * devices_per_host is the number of devices still, but where groups differ in devices_per_host it
 * is the greatest common divisor: ask ap_cluster_host for the hosts. */
enum { AP_MAX_GROUPS = 64 };
typedef struct ap_cluster {
    const char *name;
    ap_cost_model cost;
    int32_t hosts, devices_per_host;          /* their product is at most AP_CLUSTER_MAX_DEVICES */
    int32_t island;                           /* devices; 0: a host is one island */
    int64_t flops_per_second[AP_DTYPE_COUNT]; /* matrix products; 0: as f32 */
    double contract_efficiency;               /* reached fraction of it; of a curve, the largest */
    int32_t nreached;                         /* 0: contract_efficiency, whatever the size */
    ap_reached reached[AP_MAX_REACHED];       /* ascending */
    double conv_efficiency[AP_PRODUCT_KINDS]; /* of convolutions of each kind; 0: as of products */
    int64_t vector_flops_per_second;          /* pointwise work */
    /* Functions (exp, erf, ..., and division by half): 0 as other pointwise work. They are computed for `lanes`
     * elements of a row at a time, and what is left of a row one by one; 0 and 1: all alike. */
    int64_t function_flops_per_second;
    int32_t lanes;
    /* Products are made in tiles: their columns (result channels of convolutions) count as whole ones of so many, and
     * each sum of a product as of so many terms more. 0: neither. */
    int32_t tile_columns, tile_depth;
    int64_t fold_ps;                       /* of each sum, maximum, ... of a row that a kernel folds */
    int64_t product_call_ps, conv_call_ps; /* of each call of a library, beside the launch */
    int64_t conv_step_elements_per_second; /* of steps behind a convolution that read a vector or value; 0: free */
    int64_t memory_bytes_per_second;
    int32_t ncaches;               /* 0: none */
    ap_cache cache[AP_MAX_CACHES]; /* ascending in bytes */
    int64_t memory_bytes;          /* per device */
    int32_t ntiers;                /* 0, or all memories from near to far; the first is the one above */
    ap_memory_tier tier[AP_MAX_TIERS];
    int64_t launch_ps; /* per kernel */
    /* What a stage of a pipeline receives is copied by its own devices, which compute nothing meanwhile (CPUs);
     * otherwise transfers go on beside computing. */
    bool transfers_wait;
    bool cpu; /* devices are processors of the host: `compile --target cuda` gives their stages C */
    ap_level inside, across, between;
    int32_t ngroups; /* 0: uniform */
    const struct ap_cluster *group;
} ap_cluster;

/* FILE|PRESET[:HOSTS[xDEVICES]]: what ends in .yaml or .yml, or has a slash, is a file. */
ap_status ap_cluster_find(ap_ctx *ctx, const char *text, ap_cluster *out);
/* `local`, `dgx-a100-80gb`, ... with an optional :HOSTS[xDEVICES]; AP_ERR_USAGE lists the known ones. */
ap_status ap_cluster_from_preset(ap_ctx *ctx, const char *text, ap_cluster *out);
/* A cluster file (docs/clusters.md); AP_ERR_USAGE names file, line and key. `file` is for messages. */
ap_status ap_cluster_from_file(ap_ctx *ctx, const char *path, ap_cluster *out);
ap_status ap_cluster_from_text(ap_ctx *ctx, const char *file, const char *text, size_t size, ap_cluster *out);
/* The built-in description of this machine with `devices` CPU devices. */
void ap_cluster_local(int32_t devices, ap_cluster *out);

/* ---- cluster_parts.c: where ranks are ---- */

int32_t ap_cluster_devices(const ap_cluster *c);
int32_t ap_cluster_group(const ap_cluster *c, int32_t rank);       /* 0 when uniform */
int32_t ap_cluster_host(const ap_cluster *c, int32_t rank);        /* counted over all groups */
int32_t ap_cluster_host_device(const ap_cluster *c, int32_t rank); /* place among the devices of its host */
int32_t ap_cluster_island(const ap_cluster *c, int32_t rank); /* unlike for ranks of different islands, ascending */
/* The uniform cluster of the group that a rank is in; c itself when uniform. */
const ap_cluster *ap_cluster_at(const ap_cluster *c, int32_t rank);
/* What a stage on these ranks is priced by: devices and links are those of the slowest among its ranks. Ranks, hosts
 * and groups stay those of `c`, so meshes keep their real first_rank. Cheap. */
void ap_cluster_part(const ap_cluster *c, int32_t first_rank, int32_t nranks, ap_cluster *out);
/* Do two stages of `nranks` devices each cost the same wherever nothing but their place differs: like devices, hosts
 * and islands begin at the same ranks, counted from the first? */
bool ap_cluster_part_equal(const ap_cluster *c, int32_t first_a, int32_t first_b, int32_t nranks);
/* Makes `out` of groups of like hosts: 1 to AP_MAX_GROUPS uniform clusters, kept in ctx's arena. */
void ap_cluster_join(ap_ctx *ctx, const char *name, const ap_cluster *group, int32_t ngroups, ap_cluster *out);

/* The slowest link between two ranks: inside, across or between, of those that lie in unlike groups the slower. */
ap_level ap_cluster_level(const ap_cluster *c, int32_t rank_a, int32_t rank_b);
/* Bytes per second of one device when `users` devices of its unit send out of it at once. */
int64_t ap_level_rate(const ap_level *l, int32_t users);

/* How the groups of a collective lie in the machine: all of them run at once. */
enum { AP_LEVEL_INSIDE, AP_LEVEL_ACROSS, AP_LEVEL_BETWEEN, AP_LEVEL_COUNT };
typedef struct ap_span {
    int32_t ranks; /* of a group */
    int32_t top;   /* the widest level that some group crosses */
    bool even;     /* every group has count[0] ranks in each of count[1] islands in each of count[2] hosts */
    int32_t count[AP_LEVEL_COUNT];
    int32_t users[AP_LEVEL_COUNT]; /* at most so many ranks of all groups are in one unit: 1, an island, a host */
    int32_t least[AP_LEVEL_COUNT]; /* at least so many ranks of a group are in a unit that it has some in */
} ap_span;
void ap_cluster_span(const ap_cluster *c, const ap_mesh_info *mesh, int axis, ap_span *out);
/* The same of `count` groups of `size` ranks each, listed one group after the other, ascending, and counted from
 * `first`. */
void ap_cluster_span_of(const ap_cluster *c, int32_t first, const int32_t *rank, int32_t count, int32_t size,
                        ap_span *out);

/* Bytes of one shard as it lies in memory (not aligned). A partial sum of a 16-bit type is held in f32. */
int64_t ap_local_bytes(const ap_module *m, ap_dtype dtype, ap_shape shape, ap_sharding s);
/* The same without the widening: what crosses a wire. */
int64_t ap_wire_bytes(const ap_module *m, ap_dtype dtype, ap_shape shape, ap_sharding s);
/* Rounded up to what one buffer takes in the arena. */
int64_t ap_align_bytes(int64_t bytes);

/* Where the result of a node without operands lies: in a buffer like others, beside the parameters (a constant's
 * elements), or nowhere (one number everywhere is part of the kernels that read it). */
typedef enum ap_holding { AP_HELD_IN_BUFFER, AP_HELD_AS_PARAM, AP_HELD_NOWHERE } ap_holding;
ap_holding ap_node_holding(const ap_module *m, ap_node n);

/* The part of a strategy that divides work: product of the sizes of all axes that split an operand or result. */
int64_t ap_strategy_divisor(const ap_module *m, ap_node n, const ap_strategy *s);
/* Do all devices divide it? Microbatches are no devices. */
bool ap_strategy_splits_all(const ap_module *m, ap_node n, const ap_strategy *s);
/* Is the node a matrix product? */
bool ap_node_is_product(const ap_module *m, ap_node n);

/* Time of one node on local types (operands and results sharded as `s` says), from the logical types and the
 * strategy: max(FLOPs / (peak * efficiency), bytes / bandwidth) + launch. Nodes that make no kernel cost 0;
 * INT64_MAX: no choice (AP_COST_ALPA). */
int64_t ap_cost_node(const ap_cluster *c, const ap_module *m, ap_node n, const ap_strategy *s);
/* ---- cluster_rates.c: how fast a device is ---- */
/* Products, or convolutions, of `flops` FLOPs in all, `each` FLOPs one of them. Without launch and call. */
int64_t ap_cluster_product_ps(const ap_cluster *c, ap_dtype dtype, ap_product_kind kind, int64_t each, int64_t flops);
/* A kernel's touching `bytes`. Without launch. */
int64_t ap_cluster_bytes_ps(const ap_cluster *c, int64_t bytes);
/* The same of bytes that were touched before, `distance` bytes ago, themselves included. */
int64_t ap_cluster_touch_ps(const ap_cluster *c, int64_t bytes, int64_t distance);

/* The arithmetic of a kernel. */
typedef struct ap_work {
    ap_product_kind kind;
    ap_dtype dtype;
    int64_t flops, each;    /* of all products, of one of them */
    int64_t columns, depth; /* of one: columns or result channels, terms of a sum; 0: not known */
    int64_t calls;          /* of a library */
    int64_t stepped;        /* elements that steps behind a convolution read something for */
    int64_t simple;         /* FLOPs of other pointwise work */
    int64_t functions, row; /* FLOPs of functions, in rows of so many elements */
    int64_t folds;          /* of rows */
    int64_t alone;          /* elements moved that are not beside the one before */
} ap_work;
/* Of g groups from c channels to m, with a kernel of these extents. */
ap_product_kind ap_cluster_conv_kind(int64_t g, int64_t m, int64_t c, int nspatial, const int64_t *kernel);
/* Adds the FLOPs of one application. What has its own instructions (division, roots) counts half as functions. */
void ap_cluster_count_flops(ap_pointwise pw, int64_t *simple, int64_t *functions);
/* FLOPs of the products, with what their tiles have too much; FLOPs of functions, with the ends of rows. */
double ap_cluster_tiled_flops(const ap_cluster *c, const ap_work *w);
double ap_cluster_function_flops(const ap_cluster *c, const ap_work *w);
/* Picoseconds of it. Without launch. */
int64_t ap_cluster_work_ps(const ap_cluster *c, const ap_work *w);
/* A kernel of this arithmetic that moves its bytes in `memory_ps`. Processors do one after the other, GPUs both at
 * once. */
int64_t ap_cluster_kernel_ps(const ap_cluster *c, int64_t arithmetic_ps, int64_t memory_ps);
/* Reading and writing `bytes` by one kernel. */
int64_t ap_cost_memory(const ap_cluster *c, int64_t bytes);
/* ---- cost_collective.c ---- */

/* `bytes` is the size of the whole (gathered, or reduced) tensor of the group. */
typedef enum ap_collective {
    AP_COLLECTIVE_ALL_GATHER,
    AP_COLLECTIVE_ALL_REDUCE,
    AP_COLLECTIVE_REDUCE_SCATTER,
    AP_COLLECTIVE_ALL_TO_ALL,
    AP_COLLECTIVE_COUNT
} ap_collective;
/* Over `ranks` devices that one level joins, each with that link for itself; ring or direct: ranks-1 rounds. */
int64_t ap_cost_collective(const ap_cluster *c, const ap_level *l, ap_collective kind, int32_t ranks, int64_t bytes);
/* Over groups that lie in the machine as `s` says: the cheapest of a ring, a hierarchy (inside first in
 * reduce_scatter, last in all_gather) and, between hosts, a tree. */
int64_t ap_cost_span(const ap_cluster *c, const ap_span *s, ap_collective kind, int64_t bytes);
/* A parameter that all devices of the mesh hold whole: 0 in AP_COST_TIME. */
int64_t ap_cost_replicated(const ap_cluster *c, const ap_mesh_info *mesh);

/* cost_alpa.c */
int64_t ap_alpa_collective(const ap_level *l, ap_collective kind, int32_t n, int64_t bytes);
int64_t ap_alpa_replicated(const ap_cluster *c, const ap_mesh_info *mesh);
int64_t ap_alpa_node(const ap_module *m, ap_node n, const ap_strategy *s);

/* Sets the predicted time of every instruction, of a whole microbatch. */
void ap_local_price(ap_local *p, const ap_cluster *c);
/* Has a microbatch fewer elements of something than the first one? */
bool ap_local_is_short(const ap_local *p, int32_t microbatch);
/* What one microbatch takes on one rank: sums over its kernels, of the turns that they have then, and its exchanges. */
void ap_local_price_at(const ap_local *p, const ap_cluster *c, int32_t microbatch, int32_t rank, int64_t *out_compute,
                       int64_t *out_exchange);

#endif
