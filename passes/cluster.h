/* The machine that a plan is made for (DESIGN §6). Times in picoseconds, sizes in bytes. */
#ifndef AP_PASSES_CLUSTER_H
#define AP_PASSES_CLUSTER_H

#include "ir/local.h"
#include "ir/rule.h"

/* One level of links: between devices of a host, between hosts. */
typedef struct ap_link {
    int64_t latency_ps;       /* per step of a collective */
    int64_t bytes_per_second; /* of one device's link, each direction */
} ap_link;

/* A memory that a device reaches. */
typedef struct ap_memory_tier {
    const char *name;
    int64_t bytes, bytes_per_second, latency_ps;
    int32_t shared_by; /* devices */
} ap_memory_tier;
enum { AP_MAX_TIERS = 8, AP_CLUSTER_MAX_DEVICES = 65536 };

/* What a plan is priced by: predicted time, or what Alpa counts (cost_alpa.c). */
typedef enum ap_cost_model { AP_COST_TIME, AP_COST_ALPA } ap_cost_model;
const char *ap_cost_model_str(ap_cost_model m); /* "time", "alpa" */
bool ap_cost_model_from_str(const char *s, ap_cost_model *out);

typedef struct ap_cluster {
    const char *name;
    ap_cost_model cost;
    int32_t hosts, devices_per_host;          /* their product is at most AP_CLUSTER_MAX_DEVICES */
    int64_t flops_per_second[AP_DTYPE_COUNT]; /* matrix products; 0: as f32 */
    double contract_efficiency;               /* reached fraction of it */
    int64_t vector_flops_per_second;          /* pointwise work */
    int64_t memory_bytes_per_second;
    int64_t memory_bytes; /* per device */
    int32_t ntiers;       /* 0, or all memories from near to far; the first is the one above */
    ap_memory_tier tier[AP_MAX_TIERS];
    int64_t launch_ps; /* per kernel */
    ap_link inside, between;
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

/* The link that a collective over one mesh axis crosses: `between` when a group of that axis spans hosts. */
const ap_link *ap_cluster_link(const ap_cluster *c, const ap_mesh_info *mesh, int axis);

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
/* Is the node a matrix product? */
bool ap_node_is_product(const ap_module *m, ap_node n);

/* Time of one node on local types (operands and results sharded as `s` says), from the logical types and the
 * strategy: max(FLOPs / (peak * efficiency), bytes / bandwidth) + launch. Nodes that make no kernel cost 0;
 * INT64_MAX: no choice (AP_COST_ALPA). */
int64_t ap_cost_node(const ap_cluster *c, const ap_module *m, ap_node n, const ap_strategy *s);
/* Reading and writing `bytes` by one kernel. */
int64_t ap_cost_memory(const ap_cluster *c, int64_t bytes);
/* A collective over `ranks` devices where `bytes` is the size of the whole (gathered, or reduced) tensor of the
 * group; ring or direct: ranks-1 rounds. */
typedef enum ap_collective {
    AP_COLLECTIVE_ALL_GATHER,
    AP_COLLECTIVE_ALL_REDUCE,
    AP_COLLECTIVE_REDUCE_SCATTER,
    AP_COLLECTIVE_ALL_TO_ALL,
    AP_COLLECTIVE_COUNT
} ap_collective;
int64_t ap_cost_collective(const ap_cluster *c, const ap_link *l, ap_collective kind, int32_t ranks, int64_t bytes);
/* A parameter that all devices of the mesh hold whole: 0 in AP_COST_TIME. */
int64_t ap_cost_replicated(const ap_cluster *c, const ap_mesh_info *mesh);

/* cost_alpa.c */
int64_t ap_alpa_collective(const ap_link *l, ap_collective kind, int32_t n, int64_t bytes);
int64_t ap_alpa_replicated(const ap_cluster *c, const ap_mesh_info *mesh);
int64_t ap_alpa_node(const ap_module *m, ap_node n, const ap_strategy *s);

/* Sets the predicted time of every instruction. */
void ap_local_price(ap_local *p, const ap_cluster *c);

#endif
