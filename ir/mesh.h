/* A mesh: named axes over consecutive ranks. rank = first + row-major coordinate over the axes.
 *     mesh @m = [dp=2, tp=4] ranks 0..7
 *
 * Axis 0 may be *time*: its coordinate is the microbatch, and it is in no rank (DESIGN §5).
 *     time mb=4
 *     mesh @m = [dp=2] ranks 4..5
 * Such a mesh has axes mb=4 and dp=2. A *point* is what one rank does for one microbatch; points are numbered like
 * ranks, row-major over all axes, so point = microbatch * ranks + (rank - first). Without time a point is a rank. */
#ifndef AP_IR_MESH_H
#define AP_IR_MESH_H

#include "ir/type.h"

typedef struct ap_mesh_info {
    ap_name name;
    uint8_t naxes; /* time included */
    uint8_t ntime; /* 0, or 1: axis 0 is time and is called `mb` */
    ap_name axis_name[AP_MAX_AXES];
    int32_t axis_size[AP_MAX_AXES];
    int32_t first_rank;
} ap_mesh_info;

#define AP_TIME_AXIS "mb"

int32_t ap_mesh_size(const ap_mesh_info *m);         /* points: product of all axis sizes */
int32_t ap_mesh_ranks(const ap_mesh_info *m);        /* product of the sizes of axes that are not time */
int32_t ap_mesh_microbatches(const ap_mesh_info *m); /* 1 without time */
/* Bit 0 with time, so that masks of axes can be tested; else 0. */
static inline uint8_t ap_mesh_time_mask(const ap_mesh_info *m)
{
    return m->ntime ? 1 : 0;
}
void ap_mesh_coords(const ap_mesh_info *m, int32_t point, int32_t out[AP_MAX_AXES]);
int32_t ap_mesh_axes_size(const ap_mesh_info *m, ap_axes axes); /* product of their sizes */

/* Largest local shape of a shard, the same at all points: physical extents divided by the axes that split them; false
 * when an extent does not divide. */
bool ap_mesh_local_shape(const ap_mesh_info *m, const ap_shape_info *shape, const ap_sharding_info *s,
                         ap_shape_info *out);

/* The shard of the point with these coordinates: elements [start, start + logical extent) of each factor, none where
 * the padding starts before it. Physical extents are those of ap_mesh_local_shape; false as there. */
bool ap_mesh_shard(const ap_mesh_info *m, const ap_shape_info *shape, const ap_sharding_info *s, const int32_t *coords,
                   ap_shape_info *out, int64_t start[AP_MAX_FACTORS]);

#endif
