/* A mesh: named axes over consecutive ranks. rank = first + row-major coordinate over the axes.
 *     mesh @m = [dp=2, tp=4] ranks 0..7 */
#ifndef AP_IR_MESH_H
#define AP_IR_MESH_H

#include "ir/type.h"

typedef struct ap_mesh_info {
    ap_name name;
    uint8_t naxes;
    ap_name axis_name[AP_MAX_AXES];
    int32_t axis_size[AP_MAX_AXES];
    int32_t first_rank;
} ap_mesh_info;

int32_t ap_mesh_size(const ap_mesh_info *m); /* product of axis sizes */
void ap_mesh_coords(const ap_mesh_info *m, int32_t local_rank, int32_t out[AP_MAX_AXES]);
int32_t ap_mesh_axes_size(const ap_mesh_info *m, ap_axes axes); /* product of their sizes */

/* Largest local shape of a shard, the same on all ranks: physical extents divided by the axes that split them; false
 * when an extent does not divide. */
bool ap_mesh_local_shape(const ap_mesh_info *m, const ap_shape_info *shape, const ap_sharding_info *s,
                         ap_shape_info *out);

/* The shard of the rank with these coordinates: elements [start, start + logical extent) of each factor, none where
 * the padding starts before it. Physical extents are those of ap_mesh_local_shape; false as there. */
bool ap_mesh_shard(const ap_mesh_info *m, const ap_shape_info *shape, const ap_sharding_info *s, const int32_t *coords,
                   ap_shape_info *out, int64_t start[AP_MAX_FACTORS]);

#endif
