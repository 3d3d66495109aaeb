/* Pieces of a cross-mesh reshard: shards of both sides are boxes of a grid over the factors, and each destination shard
 * is walked box by box of the source grid. */
#include "passes/pipe/transfer.h"

#include <math.h>
#include <string.h>

/* One side as a grid. Factor f is cut into parts[f] shards of extent[f] elements; the shard of part p is on the ranks
 * rank[f][p] + ... summed over the factors, plus any of the `spare` ones, which hold the same. */
typedef struct side {
    const ap_transfer_side *of;
    int32_t first, nranks;
    int64_t extent[AP_MAX_FACTORS], stride[AP_MAX_FACTORS];
    int32_t parts[AP_MAX_FACTORS];
    int32_t *rank[AP_MAX_FACTORS];
    int32_t nspare, *spare; /* ascending */
    int32_t *host, *island; /* of each rank */
    int64_t count;
} side;

typedef struct walk {
    const ap_cluster *cluster;
    ap_arena *arena;
    int nfactors;
    int64_t extent[AP_MAX_FACTORS]; /* of the value, for one microbatch */
    side from, to;
    int64_t *host_sent, *rank_sent; /* elements; by host (to others), by rank of `from` */
    void (*visit)(struct walk *w, const ap_piece *piece, int64_t elements);
    void *user;
} walk;

/* ---- sides ---- */

/* Distance in ranks between neighbours along an axis. */
static int32_t axis_stride(const ap_mesh_info *m, int axis)
{
    int32_t stride = 1;
    for (int a = axis + 1; a < m->naxes; a++)
        stride *= m->axis_size[a];
    return stride;
}

static bool is_timed(const ap_transfer_side *s, int f)
{
    return s->mesh->ntime && s->mesh->axis_size[0] > 1 && s->sharding->axes[f] &&
           ap_axes_get(s->sharding->axes[f], 0) == 0;
}

/* Which ranks have which part of factor f; false where time is not major-most. */
static bool cut_factor(walk *w, side *s, int f)
{
    const ap_mesh_info *m = s->of->mesh;
    ap_axes axes = s->of->sharding->axes[f];
    int64_t all = axes ? ap_mesh_axes_size(m, axes) : 1;
    int n = ap_axes_count(axes), i0 = m->ntime && n && ap_axes_get(axes, 0) == 0 ? 1 : 0;
    s->parts[f] = 1;
    for (int i = i0; i < n; i++) {
        if (ap_axes_get(axes, i) < m->ntime)
            return false;
        s->parts[f] *= m->axis_size[ap_axes_get(axes, i)];
    }
    s->extent[f] = all == 1 ? s->of->shape->logical[f] : s->of->shape->physical[f] / all;
    if (all != 1 && s->of->shape->physical[f] % all != 0)
        return false;
    s->rank[f] = AP_NEW_ARRAY(w->arena, int32_t, s->parts[f]);
    for (int32_t p = 0; p < s->parts[f]; p++) {
        int32_t rest = p;
        for (int i = n - 1; i >= i0; i--) {
            int a = ap_axes_get(axes, i);
            s->rank[f][p] += rest % m->axis_size[a] * axis_stride(m, a);
            rest /= m->axis_size[a];
        }
    }
    return true;
}

/* The coordinates on axes that split nothing. */
static void find_spare(walk *w, side *s)
{
    const ap_mesh_info *m = s->of->mesh;
    uint8_t split = ap_sharding_split_mask(s->of->sharding);
    s->nspare = 1;
    for (int a = m->ntime; a < m->naxes; a++)
        s->nspare *= split >> a & 1 ? 1 : m->axis_size[a];
    s->spare = AP_NEW_ARRAY(w->arena, int32_t, s->nspare);
    for (int32_t i = 0; i < s->nspare; i++) {
        int32_t rest = i;
        for (int a = m->naxes - 1; a >= m->ntime; a--) {
            if (split >> a & 1)
                continue;
            s->spare[i] += rest % m->axis_size[a] * axis_stride(m, a);
            rest /= m->axis_size[a];
        }
    }
}

static void find_hosts(walk *w, side *s)
{
    s->host = AP_NEW_ARRAY(w->arena, int32_t, s->nranks);
    s->island = AP_NEW_ARRAY(w->arena, int32_t, s->nranks);
    for (int32_t r = 0; r < s->nranks && w->cluster; r++) {
        s->host[r] = ap_cluster_host(w->cluster, s->first + r);
        s->island[r] = ap_cluster_island(w->cluster, s->first + r);
    }
}

static bool open_side(walk *w, side *s, const ap_transfer_side *of)
{
    s->of = of;
    s->first = of->mesh->first_rank;
    s->nranks = ap_mesh_ranks(of->mesh);
    s->count = 1;
    if (ap_sharding_partial_mask(of->sharding))
        return false;
    for (int f = of->shape->nfactors - 1; f >= 0; f--) {
        if (!cut_factor(w, s, f))
            return false;
        s->stride[f] = s->count;
        if (!ap_mul_i64(s->count, s->extent[f], &s->count))
            return false;
    }
    find_spare(w, s);
    find_hosts(w, s);
    return true;
}

/* Both sides have the same elements of the value in one microbatch. A batch that the microbatches do not divide has all
 * places of a whole one, so that the pieces are the same for the last, which is short. */
static bool same_value(walk *w)
{
    const ap_transfer_side *a = w->from.of, *b = w->to.of;
    if (a->shape->nfactors != b->shape->nfactors || ap_mesh_microbatches(a->mesh) != ap_mesh_microbatches(b->mesh))
        return false;
    w->nfactors = a->shape->nfactors;
    for (int f = 0; f < w->nfactors; f++) {
        bool timed = is_timed(a, f);
        if (a->shape->logical[f] != b->shape->logical[f] || timed != is_timed(b, f))
            return false;
        w->extent[f] = timed ? w->from.extent[f] * w->from.parts[f] : a->shape->logical[f];
        if (timed && w->extent[f] != w->to.extent[f] * w->to.parts[f])
            return false;
    }
    return true;
}

static bool open_walk(walk *w, const ap_transfer_side *from, const ap_transfer_side *to)
{
    if (!open_side(w, &w->from, from) || !open_side(w, &w->to, to) || !same_value(w))
        return false;
    w->host_sent = AP_NEW_ARRAY(w->arena, int64_t, w->from.host[w->from.nranks - 1] + 1); /* hosts ascend with ranks */
    w->rank_sent = AP_NEW_ARRAY(w->arena, int64_t, w->from.nranks);
    return true;
}

/* ---- pieces ---- */

typedef enum far { SELF, ISLAND, HOST, ELSEWHERE, FAR_COUNT } far;

/* How far it is from a rank of one side to one of the other; both counted from the first of their side. */
static far distance(const walk *w, int32_t src, int32_t dst)
{
    if (w->from.first + src == w->to.first + dst)
        return SELF;
    if (w->from.island[src] == w->to.island[dst])
        return ISLAND;
    return w->from.host[src] == w->to.host[dst] ? HOST : ELSEWHERE;
}

/* Of the ranks base + spare[...] the one that shall send to dst; all counted from the first of their side. */
static int32_t choose_sender(const walk *w, int32_t base, int32_t dst)
{
    int32_t best = base + w->from.spare[0];
    for (int32_t i = 1; i < w->from.nspare; i++) {
        int32_t src = base + w->from.spare[i];
        far a = distance(w, src, dst), b = distance(w, best, dst);
        int64_t ha = w->host_sent[w->from.host[src]], hb = w->host_sent[w->from.host[best]];
        if (a != b ? a < b : a == ELSEWHERE && ha != hb ? ha < hb : w->rank_sent[src] < w->rank_sent[best])
            best = src;
    }
    return best;
}

static void count_sent(walk *w, int32_t src, int32_t dst, int64_t elements)
{
    far d = distance(w, src, dst);
    if (d == ELSEWHERE)
        w->host_sent[w->from.host[src]] += elements;
    if (d != SELF)
        w->rank_sent[src] += elements;
}

/* Adds the next dimension, inside the ones before; joined to the last one where both sides walk them as one. */
static void add_dim(ap_piece *p, int64_t extent, int64_t src_stride, int64_t dst_stride)
{
    if (extent == 1)
        return;
    int last = p->ndims - 1;
    if (last >= 0 && p->src_stride[last] == src_stride * extent && p->dst_stride[last] == dst_stride * extent) {
        p->extent[last] *= extent;
        p->src_stride[last] = src_stride;
        p->dst_stride[last] = dst_stride;
        return;
    }
    p->extent[p->ndims] = extent;
    p->src_stride[p->ndims] = src_stride;
    p->dst_stride[p->ndims++] = dst_stride;
}

/* What the source shard of parts src_part and the destination shard of parts dst_part have in common. */
static void make_piece(walk *w, int32_t dst, const int32_t *dst_part, const int32_t *src_part)
{
    ap_piece p = {.dst_rank = w->to.first + dst};
    int64_t elements = 1;
    int32_t base = 0;
    for (int f = 0; f < w->nfactors; f++) {
        int64_t a = src_part[f] * w->from.extent[f], b = dst_part[f] * w->to.extent[f];
        int64_t lo = ap_max_i64(a, b), hi = ap_min_i64(a + w->from.extent[f], b + w->to.extent[f]);
        hi = ap_min_i64(hi, w->extent[f]);
        p.src_offset += (lo - a) * w->from.stride[f];
        p.dst_offset += (lo - b) * w->to.stride[f];
        add_dim(&p, hi - lo, w->from.stride[f], w->to.stride[f]);
        elements *= hi - lo;
        base += w->from.rank[f][src_part[f]];
    }
    int32_t src = choose_sender(w, base, dst);
    p.src_rank = w->from.first + src;
    count_sent(w, src, dst, elements);
    w->visit(w, &p, elements);
}

/* All pieces of one destination rank, an odometer over the source shards that it meets. */
static void walk_rank(walk *w, int32_t dst, const int32_t *dst_part)
{
    int32_t first[AP_MAX_FACTORS], last[AP_MAX_FACTORS], at[AP_MAX_FACTORS];
    for (int f = 0; f < w->nfactors; f++) {
        int64_t lo = dst_part[f] * w->to.extent[f], hi = ap_min_i64(lo + w->to.extent[f], w->extent[f]);
        if (lo >= hi)
            return;
        at[f] = first[f] = (int32_t)(lo / w->from.extent[f]);
        last[f] = (int32_t)((hi - 1) / w->from.extent[f]);
    }
    for (;;) {
        make_piece(w, dst, dst_part, at);
        int f = w->nfactors - 1;
        while (f >= 0 && at[f] == last[f])
            at[f] = first[f], f--;
        if (f < 0)
            return;
        at[f]++;
    }
}

/* Which part of factor f the rank with these coordinates holds. */
static int32_t part_of(const side *s, int f, const int32_t *coords)
{
    ap_axes axes = s->of->sharding->axes[f];
    int32_t part = 0;
    for (int i = 0; i < ap_axes_count(axes); i++) {
        int a = ap_axes_get(axes, i);
        if (a >= s->of->mesh->ntime)
            part = part * s->of->mesh->axis_size[a] + coords[a];
    }
    return part;
}

static void walk_all(walk *w)
{
    for (int32_t r = 0; r < w->to.nranks; r++) {
        int32_t coords[AP_MAX_AXES], part[AP_MAX_FACTORS];
        ap_mesh_coords(w->to.of->mesh, r, coords); /* of microbatch 0: point r */
        for (int f = 0; f < w->nfactors; f++)
            part[f] = part_of(&w->to, f, coords);
        walk_rank(w, r, part);
    }
}

/* ---- the list ---- */

typedef struct list {
    ap_arena *arena;
    AP_VEC(ap_piece) pieces;
} list;

static void append(walk *w, const ap_piece *piece, int64_t elements)
{
    (void)elements;
    list *l = w->user;
    ap_vec_push(l->arena, &l->pieces, *piece);
}

ap_status ap_transfer_find(ap_ctx *ctx, ap_arena *arena, const ap_cluster *cluster, const ap_transfer_side *from,
                           const ap_transfer_side *to, ap_transfer *out)
{
    list l = {.arena = arena};
    walk w = {.cluster = cluster, .arena = arena, .visit = append, .user = &l};
    if (!open_walk(&w, from, to))
        return ap_fail(ctx, AP_ERR_BUG, 0, "transfer: the two sides do not hold one value in the same microbatches");
    walk_all(&w);
    *out = (ap_transfer){.npieces = l.pieces.len, .piece = l.pieces.at};
    out->src_count = w.from.count;
    out->dst_count = w.to.count;
    for (int f = 0; f < w.nfactors; f++)
        out->padded = out->padded || w.to.extent[f] * w.to.parts[f] != w.extent[f];
    return AP_OK;
}

/* ---- the price ---- */

/* Everything leaves and arrives through ports: those of a device, one for each kind of link, and what the devices of an
 * island or host share of the link that leads out. Picoseconds that each of them is busy. */
typedef struct ports {
    int64_t bytes;                                               /* of an element */
    double *sent[FAR_COUNT], *received[FAR_COUNT];               /* by rank of either side */
    double *shared_sent[FAR_COUNT], *shared_received[FAR_COUNT]; /* by island (of links in a host), by host */
    double most, latency;
} ports;

static void load(ports *p, double *port, double bytes, int64_t bytes_per_second)
{
    if (bytes_per_second <= 0)
        return;
    *port += bytes * 1e12 / (double)bytes_per_second;
    p->most = *port > p->most ? *port : p->most;
}

static void load_ports(walk *w, const ap_piece *piece, int64_t elements)
{
    ports *p = w->user;
    int32_t src = piece->src_rank - w->from.first, dst = piece->dst_rank - w->to.first;
    far d = distance(w, src, dst);
    if (d == SELF)
        return;
    ap_level level = ap_cluster_level(w->cluster, piece->src_rank, piece->dst_rank);
    double bytes = (double)elements * (double)p->bytes;
    p->latency = (double)level.latency_ps > p->latency ? (double)level.latency_ps : p->latency;
    load(p, &p->sent[d][src], bytes, level.bytes_per_second);
    load(p, &p->received[d][dst], bytes, level.bytes_per_second);
    if (d == ISLAND)
        return;
    const int32_t *from = d == HOST ? w->from.island : w->from.host, *to = d == HOST ? w->to.island : w->to.host;
    load(p, &p->shared_sent[d][from[src]], bytes, level.shared_bytes_per_second);
    load(p, &p->shared_received[d][to[dst]], bytes, level.shared_bytes_per_second);
}

int64_t ap_transfer_cost(const ap_cluster *cluster, ap_arena *arena, const ap_transfer_side *from,
                         const ap_transfer_side *to, int64_t element_bytes)
{
    ports p = {.bytes = element_bytes};
    walk w = {.cluster = cluster, .arena = arena, .visit = load_ports, .user = &p};
    if (!open_walk(&w, from, to))
        return INT64_MAX;
    for (int d = ISLAND; d < FAR_COUNT; d++) { /* the numbers of islands and hosts are at most those of ranks */
        p.sent[d] = AP_NEW_ARRAY(arena, double, w.from.nranks);
        p.received[d] = AP_NEW_ARRAY(arena, double, w.to.nranks);
        p.shared_sent[d] = AP_NEW_ARRAY(arena, double, w.from.first + w.from.nranks);
        p.shared_received[d] = AP_NEW_ARRAY(arena, double, w.to.first + w.to.nranks);
    }
    walk_all(&w);
    return p.latency + p.most < 9e18 ? (int64_t)(p.latency + p.most) : INT64_MAX;
}

/* ---- the price, by counting ---- */

/* Elements of the largest shard of factor f. */
static int64_t shard_extent(const ap_transfer_side *s, int f)
{
    int64_t parts = s->sharding->axes[f] ? ap_mesh_axes_size(s->mesh, s->sharding->axes[f]) : 1;
    int64_t extent = parts == 1 ? s->shape->logical[f] : s->shape->physical[f] / parts;
    return ap_min_i64(extent, s->shape->logical[f]);
}

/* How many ranks hold the same. */
static int64_t holders(const ap_transfer_side *s)
{
    uint8_t split = ap_sharding_split_mask(s->sharding);
    int64_t n = 1;
    for (int a = 0; a < s->mesh->naxes; a++)
        n *= split >> a & 1 ? 1 : s->mesh->axis_size[a];
    return n;
}

/* A source shard goes out in `pieces`, one for each destination rank that holds a part of it; all of them together are
 * the shard as often as destination ranks hold the same. Its holders take turns. */
int64_t ap_transfer_estimate(const ap_cluster *cluster, const ap_transfer_side *from, const ap_transfer_side *to,
                             int64_t element_bytes)
{
    double sent = 1, received = 1, pieces = (double)holders(to), turns = (double)holders(from);
    for (int f = 0; f < from->shape->nfactors; f++) {
        int64_t a = shard_extent(from, f), b = shard_extent(to, f);
        if (a == 0 || b == 0)
            return 0;
        int64_t met = (a + b - 1) / b; /* parts of the destination */
        pieces *= (double)met;
        sent *= (double)a;
        received *= (double)b;
    }
    sent *= (double)holders(to) * ceil(pieces / turns) / pieces;
    ap_level level = ap_cluster_level(cluster, from->mesh->first_rank, to->mesh->first_rank);
    double most = sent > received ? sent : received, rate = (double)level.bytes_per_second;
    double ps = (double)level.latency_ps + (rate > 0 ? most * (double)element_bytes * 1e12 / rate : 0);
    return ps < 9e18 ? (int64_t)ps : INT64_MAX;
}
