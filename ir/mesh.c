/* Meshes: sizes, coordinates and the shapes of shards. */
#include "ir/mesh.h"

int32_t ap_mesh_size(const ap_mesh_info *m)
{
    int32_t n = 1;
    for (int a = 0; a < m->naxes; a++)
        n *= m->axis_size[a];
    return n;
}

int32_t ap_mesh_ranks(const ap_mesh_info *m)
{
    int32_t n = 1;
    for (int a = m->ntime; a < m->naxes; a++)
        n *= m->axis_size[a];
    return n;
}

int32_t ap_mesh_microbatches(const ap_mesh_info *m)
{
    return m->ntime ? m->axis_size[0] : 1;
}

void ap_mesh_coords(const ap_mesh_info *m, int32_t point, int32_t out[AP_MAX_AXES])
{
    for (int a = m->naxes - 1; a >= 0; a--) {
        out[a] = point % m->axis_size[a];
        point /= m->axis_size[a];
    }
}

int32_t ap_mesh_axes_size(const ap_mesh_info *m, ap_axes axes)
{
    int32_t n = 1;
    for (int i = 0; i < ap_axes_count(axes); i++)
        n *= m->axis_size[ap_axes_get(axes, i)];
    return n;
}

bool ap_mesh_local_shape(const ap_mesh_info *m, const ap_shape_info *shape, const ap_sharding_info *s,
                         ap_shape_info *out)
{
    *out = *shape;
    for (int f = 0; f < shape->nfactors && f < s->nfactors; f++) {
        int32_t n = ap_mesh_axes_size(m, s->axes[f]);
        if (shape->physical[f] % n != 0)
            return false;
        if (n > 1)
            out->logical[f] = out->physical[f] = shape->physical[f] / n;
    }
    return true;
}

bool ap_mesh_shard(const ap_mesh_info *m, const ap_shape_info *shape, const ap_sharding_info *s, const int32_t *coords,
                   ap_shape_info *out, int64_t start[AP_MAX_FACTORS])
{
    if (!ap_mesh_local_shape(m, shape, s, out))
        return false;
    for (int f = 0; f < shape->nfactors; f++) {
        int64_t part = 0;
        for (int i = 0; i < ap_axes_count(s->axes[f]); i++) {
            int a = ap_axes_get(s->axes[f], i);
            part = part * m->axis_size[a] + coords[a];
        }
        start[f] = part * out->physical[f];
        int64_t left = shape->logical[f] > start[f] ? shape->logical[f] - start[f] : 0;
        out->logical[f] = ap_min_i64(left, out->physical[f]);
    }
    return true;
}
