/* Cross-mesh resharding: what has to be sent so that a value with one sharding on one mesh is there with another
 * sharding on another mesh (Alpa §5; DESIGN §8). Both meshes factor time out the same way, so one list of pieces serves
 * every microbatch.
 *
 *   from, dp=2 x tp=2, @m[dp,tp]         to, x=2, @m[x,-]
 *   rank 0 | rank 1                      rank 4 rank 4     a piece is where a shard of the one side meets a shard of
 *   -------+-------             -->      -------------     the other: rank 4 gets its rows from ranks 0 and 1
 *   rank 2 | rank 3                      rank 5 rank 5
 *
 * Every element that a destination rank holds arrives there once. Who sends it is chosen among all ranks that hold it:
 * the rank itself, else one of the same island, else of the same host, else of the host that has sent least to others;
 * among equals the device that has sent least, then the first (Alpa's own scheme lets the first holder send
 * everything). Making a value whole on several devices of a host after one copy has arrived is not done here: an
 * arrival sharding that splits, and an all_gather behind it, is a choice of the planner. */
#ifndef AP_PASSES_PIPE_TRANSFER_H
#define AP_PASSES_PIPE_TRANSFER_H

#include "ir/program.h"
#include "passes/cluster.h"

typedef struct ap_transfer_side {
    const ap_mesh_info *mesh;
    const ap_shape_info *shape; /* with the physical extents of this side */
    const ap_sharding_info *sharding;
} ap_transfer_side;

typedef struct ap_transfer {
    uint32_t npieces;
    ap_piece *piece;              /* by destination rank, then by place in the value */
    int64_t src_count, dst_count; /* elements of one slot */
    bool padded;                  /* some destination shard has places that no element fills */
} ap_transfer;

/* The pieces, in `arena`. `cluster` says which ranks share a host; NULL: all do. AP_ERR_BUG when the two sides are not
 * one value: other extents, other microbatches, or a partial sum. */
ap_status ap_transfer_find(ap_ctx *ctx, ap_arena *arena, const ap_cluster *cluster, const ap_transfer_side *from,
                           const ap_transfer_side *to, ap_transfer *out);

/* Picoseconds of one microbatch: latency of the farthest link that is used, and the time of the busiest port: what a
 * device sends or receives in its island, its host, to other hosts, and what the devices of an island or a host send or
 * receive together where they share the link that leads out. 0 when nothing leaves a rank, INT64_MAX where
 * ap_transfer_find fails. Allocates in `arena`, a few words per rank. */
int64_t ap_transfer_cost(const ap_cluster *cluster, ap_arena *arena, const ap_transfer_side *from,
                         const ap_transfer_side *to, int64_t element_bytes);
/* The same in no time, however many ranks there are: that of the two sides inside one island, without a rank in common
 * and without microbatches. Exact where all pieces have one size. */
int64_t ap_transfer_estimate(const ap_cluster *cluster, const ap_transfer_side *from, const ap_transfer_side *to,
                             int64_t element_bytes);

#endif
