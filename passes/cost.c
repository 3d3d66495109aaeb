/* Predicted times of kernels in picoseconds (DESIGN §6): max(FLOPs / (peak * efficiency), bytes / bandwidth) + launch,
 * of local shapes. Everything is integer and saturating: a cost never overflows into a small number, and two machines
 * print the same plan. */
#include "ir/op.h"
#include "passes/cluster.h"

#include <assert.h>

#define PS_PER_SECOND INT64_C(1000000000000)
#define COST_MAX (INT64_MAX / 1024) /* sums of many stay below AP_FORBIDDEN */

/* a * b / c, rounded up, saturating; a, b >= 0, c > 0 */
static int64_t mul_div(int64_t a, int64_t b, int64_t c)
{
    unsigned __int128 r =
        ((unsigned __int128)a * (unsigned __int128)b + (unsigned __int128)(c - 1)) / (unsigned __int128)c;
    return r > (unsigned __int128)COST_MAX ? COST_MAX : (int64_t)r;
}

static int64_t cost_add(int64_t a, int64_t b)
{
    return ap_min_i64(ap_sat_add(a, b), COST_MAX);
}

int64_t ap_align_bytes(int64_t bytes)
{
    return bytes > INT64_MAX - 63 ? bytes : (bytes + 63) / 64 * 64;
}

/* ---- sizes ---- */

static int64_t local_count(const ap_module *m, ap_shape shape, ap_sharding s)
{
    const ap_shape_info *info = ap_shape_get(m->ctx, shape);
    const ap_sharding_info *sharding = ap_sharding_get(m->ctx, s);
    int64_t n = 1;
    for (int f = 0; f < info->nfactors; f++) {
        int64_t parts = s ? ap_mesh_axes_size(&m->meshes.at[sharding->mesh], sharding->axes[f]) : 1;
        n = ap_sat_mul(n, parts > 1 ? info->physical[f] / parts : info->logical[f]);
    }
    return n;
}

int64_t ap_wire_bytes(const ap_module *m, ap_dtype dtype, ap_shape shape, ap_sharding s)
{
    return ap_sat_mul(local_count(m, shape, s), ap_dtype_bytes(dtype));
}

int64_t ap_local_bytes(const ap_module *m, ap_dtype dtype, ap_shape shape, ap_sharding s)
{
    int64_t each = ap_dtype_bytes(dtype);
    bool narrow = ap_dtype_is_float(dtype) && each < 4;
    if (narrow && s && ap_sharding_get(m->ctx, s)->partial[AP_PARTIAL_SUM])
        each = 4;
    return ap_sat_mul(local_count(m, shape, s), each);
}

ap_holding ap_node_holding(const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    if (ap_op_get(node->op)->lower != AP_LOWER_CONSTANT)
        return AP_HELD_IN_BUFFER;
    bool one = ap_shape_count(ap_value_shape(m, node->out[0])) == 1;
    return one || node->u.constant->kind == AP_DATA_SPLAT ? AP_HELD_NOWHERE : AP_HELD_AS_PARAM;
}

static int64_t value_bytes(const ap_module *m, ap_value v, ap_sharding s)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    return ap_local_bytes(m, t.dtype, t.shape, s);
}

/* ---- nodes ---- */

/* All axes that split an operand or result. */
static uint8_t splitting_axes(const ap_module *m, ap_node n, const ap_strategy *s, ap_mesh *out_mesh)
{
    const ap_node_info *node = ap_node_at(m, n);
    uint8_t mask = 0;
    for (uint32_t i = 0; i < node->nin + node->nout; i++) {
        ap_sharding id = i < node->nin ? s->operand[i] : s->result[i - node->nin];
        if (!id)
            continue;
        const ap_sharding_info *info = ap_sharding_get(m->ctx, id);
        mask |= ap_sharding_split_mask(info);
        *out_mesh = info->mesh;
    }
    return mask;
}

int64_t ap_strategy_divisor(const ap_module *m, ap_node n, const ap_strategy *s)
{
    ap_mesh mesh = AP_NONE;
    uint8_t mask = splitting_axes(m, n, s, &mesh);
    int64_t divisor = 1;
    for (int a = 0; mask >> a; a++)
        if (mask >> a & 1)
            divisor *= m->meshes.at[mesh].axis_size[a];
    return divisor;
}

bool ap_strategy_splits_all(const ap_module *m, ap_node n, const ap_strategy *s)
{
    ap_mesh mesh = 0;
    uint8_t mask = splitting_axes(m, n, s, &mesh);
    for (int a = m->meshes.at[mesh].ntime; a < m->meshes.at[mesh].naxes; a++)
        if (!(mask >> a & 1) && m->meshes.at[mesh].axis_size[a] > 1)
            return false;
    return true;
}

bool ap_node_is_product(const ap_module *m, ap_node n)
{
    ap_lowering lower = ap_op_get(ap_node_at(m, n)->op)->lower;
    return lower == AP_LOWER_CONTRACT || lower == AP_LOWER_CONV;
}

/* How much of each split letter the device has that has most of it. */
typedef struct share {
    int n;
    int64_t part[AP_MAX_AXES], whole[AP_MAX_AXES];
} share;

static share find_share(const ap_module *m, ap_node n, const ap_strategy *s)
{
    const ap_node_info *node = ap_node_at(m, n);
    share sh = {0};
    uint8_t seen = 0;
    for (uint32_t i = 0; i < node->nin + node->nout; i++) {
        ap_sharding id = i < node->nin ? s->operand[i] : s->result[i - node->nin];
        const ap_shape_info *shape = ap_value_shape(m, i < node->nin ? node->in[i] : node->out[i - node->nin]);
        const ap_sharding_info *info = ap_sharding_get(m->ctx, id);
        for (int f = 0; id && f < info->nfactors; f++) {
            uint8_t mask = ap_axes_mask(info->axes[f]);
            if (!mask || (mask & seen) || shape->logical[f] == 0)
                continue;
            seen |= mask;
            sh.part[sh.n] = shape->physical[f] / ap_mesh_axes_size(&m->meshes.at[info->mesh], info->axes[f]);
            sh.whole[sh.n++] = shape->logical[f];
        }
    }
    return sh;
}

static int64_t share_of(const share *sh, int64_t flops)
{
    for (int i = 0; i < sh->n; i++) {
        unsigned __int128 part = (unsigned __int128)flops * (unsigned __int128)sh->part[i];
        part = (part + (unsigned __int128)(sh->whole[i] - 1)) / (unsigned __int128)sh->whole[i];
        flops = part > INT64_MAX ? INT64_MAX : (int64_t)part;
    }
    return flops;
}

/* How many products a contraction is: letters that both operands and the result have count them. A device that has a
 * part of these has as large ones; `s` (NULL: inside a body) says which of the other letters are split. */
static int64_t batch_of(const ap_module *m, ap_node n, const ap_strategy *s)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_spec_side *a = &node->u.spec->operand[0], *b = &node->u.spec->operand[1];
    const ap_shape_info *shape = ap_value_shape(m, node->in[0]);
    int64_t batch = 1, divisor = s ? ap_strategy_divisor(m, n, s) : 1;
    for (int f = 0; f < a->nletters; f++) {
        if (ap_spec_side_find(b, a->letter[f]) < 0 || ap_spec_side_find(&node->u.spec->result, a->letter[f]) < 0)
            continue;
        batch = ap_sat_mul(batch, shape->logical[f]);
        if (s && s->operand[0]) {
            const ap_sharding_info *info = ap_sharding_get(m->ctx, s->operand[0]);
            divisor /= ap_mesh_axes_size(&m->meshes.at[info->mesh], info->axes[f]);
        }
    }
    return ap_sat_mul(batch, ap_max_i64(divisor, 1));
}

static ap_product_kind conv_kind(const ap_module *m, ap_node n)
{
    const ap_shape_info *w = ap_value_shape(m, ap_node_at(m, n)->in[1]);
    int64_t kernel[AP_MAX_SPATIAL];
    for (int d = 3; d < w->rank; d++)
        kernel[d - 3] = ap_shape_dim(w, d);
    return ap_cluster_conv_kind(ap_shape_dim(w, 0), ap_shape_dim(w, 1), ap_shape_dim(w, 2), w->rank - 3, kernel);
}

/* Time of the arithmetic of `n`, its body included, on a device that has this share of it. */
static int64_t arithmetic(const ap_cluster *c, const ap_module *m, ap_node n, const share *sh, const ap_strategy *s)
{
    const ap_node_info *node = ap_node_at(m, n);
    if (ap_op_get(node->op)->has_body) {
        int64_t sum = 0;
        const ap_block_info *body = ap_block_at(m, node->body);
        for (uint32_t i = 0; i < body->nodes.len; i++)
            sum = cost_add(sum, arithmetic(c, m, body->nodes.at[i], sh, NULL));
        return sum;
    }
    if (ap_op_get(node->op)->terminator || node->nin == 0)
        return 0;
    int64_t flops = share_of(sh, ap_node_flops(m, n));
    if (ap_op_is_pointwise(node->op) && c->function_flops_per_second > 0) {
        int64_t simple = 0, functions = 0, one = ap_max_i64(ap_shape_count(ap_value_shape(m, node->out[0])), 1);
        ap_cluster_count_flops(ap_op_scalar(node->op), &simple, &functions);
        one = share_of(sh, one);
        return ap_cluster_work_ps(
            c, &(ap_work){.simple = ap_sat_mul(simple, one), .functions = ap_sat_mul(functions, one)});
    }
    if (!ap_node_is_product(m, n))
        return mul_div(flops, PS_PER_SECOND, c->vector_flops_per_second);
    bool conv = ap_op_get(node->op)->lower == AP_LOWER_CONV;
    ap_dtype dtype = ap_type_dtype(m->ctx, ap_value_type(m, node->in[0]));
    int64_t each = conv ? flops : ap_min_i64(flops, ap_node_flops(m, n) / ap_max_i64(1, batch_of(m, n, s)));
    return ap_cluster_product_ps(c, dtype, conv ? conv_kind(m, n) : AP_PRODUCT_MATRIX, each, flops);
}

/* What is taken out of operand i when it is only looked up, by the node or inside of it; INT64_MAX when it is read. */
static int64_t looked_up(const ap_module *m, ap_node n, uint32_t i, const ap_strategy *s)
{
    const ap_node_info *node = ap_node_at(m, n);
    if (i == 0 && ap_op_get(node->op)->lower == AP_LOWER_GATHER)
        return value_bytes(m, node->out[0], s->result[0]);
    const ap_block_info *body = ap_op_get(node->op)->has_body ? ap_block_at(m, node->body) : NULL;
    for (uint32_t b = 0; body && b < body->nodes.len; b++) {
        const ap_node_info *inner = ap_node_at(m, body->nodes.at[b]);
        if (ap_op_get(inner->op)->lower == AP_LOWER_GATHER && inner->in[0] == node->in[i])
            return ap_type_bytes(m->ctx, ap_value_type(m, inner->out[0])) / ap_strategy_divisor(m, n, s);
    }
    return INT64_MAX;
}

/* Bytes that the kernel touches. Of a table that is looked up only what is taken out counts. */
static int64_t traffic(const ap_module *m, ap_node n, const ap_strategy *s)
{
    const ap_node_info *node = ap_node_at(m, n);
    int64_t results = 0, sum = 0;
    for (uint32_t i = 0; i < node->nout; i++)
        results = ap_sat_add(results, value_bytes(m, node->out[i], s->result[i]));
    for (uint32_t i = 0; i < node->nin; i++) {
        int64_t bytes = value_bytes(m, node->in[i], s->operand[i]);
        sum = ap_sat_add(sum, ap_min_i64(bytes, looked_up(m, n, i, s)));
    }
    return ap_sat_add(sum, results);
}

int64_t ap_cost_memory(const ap_cluster *c, int64_t bytes)
{
    if (c->cost == AP_COST_ALPA)
        return 0;
    return cost_add(ap_cluster_bytes_ps(c, bytes), c->launch_ps);
}

int64_t ap_cost_node(const ap_cluster *c, const ap_module *m, ap_node n, const ap_strategy *s)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_op_info *op = ap_op_get(node->op);
    if (op->shares_buffer || op->terminator || node->nin == 0)
        return 0;
    if (c->cost == AP_COST_ALPA)
        return ap_alpa_node(m, n, s);
    share sh = find_share(m, n, s);
    int64_t compute = arithmetic(c, m, n, &sh, s);
    int64_t memory = ap_cluster_bytes_ps(c, traffic(m, n, s));
    return cost_add(ap_max_i64(compute, memory), c->launch_ps);
}

int64_t ap_cost_replicated(const ap_cluster *c, const ap_mesh_info *mesh)
{
    return c->cost == AP_COST_ALPA ? ap_alpa_replicated(c, mesh) : 0;
}
