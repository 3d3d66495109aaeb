/* The machine that a plan is made for (DESIGN §6). Times in picoseconds, sizes in bytes. */
#ifndef AP_PASSES_CLUSTER_H
#define AP_PASSES_CLUSTER_H

#include "ir/rule.h"

/* One level of links: between devices of a host, between hosts. */
typedef struct ap_link {
    int64_t latency_ps;       /* per step of a collective */
    int64_t bytes_per_second; /* of one device's link, each direction */
} ap_link;

typedef struct ap_cluster {
    const char *name;
    int32_t hosts, devices_per_host;
    int64_t flops_per_second[AP_DTYPE_COUNT]; /* matrix products; 0: as f32 */
    double contract_efficiency;               /* reached fraction of it */
    int64_t vector_flops_per_second;          /* pointwise work */
    int64_t memory_bytes_per_second;
    int64_t memory_bytes; /* per device */
    int64_t launch_ps;    /* per kernel */
    ap_link inside, between;
} ap_cluster;

/* `local`, `dgx-a100-80gb`, ... with an optional :HOSTS[xDEVICES]; AP_ERR_USAGE lists the known ones. */
ap_status ap_cluster_from_preset(ap_ctx *ctx, const char *text, ap_cluster *out);
/* The built-in description of this machine with `devices` CPU devices. */
void ap_cluster_local(int32_t devices, ap_cluster *out);

/* Time of one node on local types, of one elementary step, of a collective over `ranks` devices where `bytes` is the
 * size of the whole (gathered, or reduced) tensor of the group. */
int64_t ap_cost_node(const ap_cluster *c, const ap_module *m, ap_node n, const ap_strategy *s);
int64_t ap_cost_all_reduce(const ap_cluster *c, int32_t ranks, int64_t bytes);
int64_t ap_cost_all_gather(const ap_cluster *c, int32_t ranks, int64_t bytes);
int64_t ap_cost_reduce_scatter(const ap_cluster *c, int32_t ranks, int64_t bytes);
int64_t ap_cost_all_to_all(const ap_cluster *c, int32_t ranks, int64_t bytes);

#endif
