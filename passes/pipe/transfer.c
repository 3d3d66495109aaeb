/* Pieces of a cross-mesh reshard: shards of both sides are boxes of a grid over the factors, and each destination shard
 * is walked box by box of the source grid. */
#include "passes/pipe/transfer.h"

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
    int64_t count;
} side;

typedef struct walk {
    const ap_cluster *cluster;
    ap_arena *arena;
    int nfactors;
    int64_t extent[AP_MAX_FACTORS]; /* of the value, for one microbatch */
    side from, to;
    int64_t *host_sent, *rank_sent; /* elements; by host, by rank of `from` */
    void (*visit)(void *user, const ap_piece *piece);
    void *user;
} walk;

static int32_t host_of(const ap_cluster *c, int32_t rank)
{
    return c ? rank / c->devices_per_host : 0;
}

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
    w->host_sent = AP_NEW_ARRAY(w->arena, int64_t, host_of(w->cluster, w->from.first + w->from.nranks - 1) + 1);
    w->rank_sent = AP_NEW_ARRAY(w->arena, int64_t, w->from.nranks);
    return true;
}

/* ---- pieces ---- */

/* How far away a holder is: the rank itself, its host, another one. */
static int distance(const walk *w, int32_t a, int32_t b)
{
    return a == b ? 0 : host_of(w->cluster, a) == host_of(w->cluster, b) ? 1 : 2;
}

/* Of the ranks base + spare[...] the one that shall send to dst. */
static int32_t choose_sender(const walk *w, int32_t base, int32_t dst)
{
    int32_t best = w->from.first + base + w->from.spare[0];
    for (int32_t i = 1; i < w->from.nspare; i++) {
        int32_t rank = w->from.first + base + w->from.spare[i];
        int da = distance(w, rank, dst), db = distance(w, best, dst);
        int64_t ha = w->host_sent[host_of(w->cluster, rank)], hb = w->host_sent[host_of(w->cluster, best)];
        int64_t ra = w->rank_sent[rank - w->from.first], rb = w->rank_sent[best - w->from.first];
        if (da != db ? da < db : da == 2 && ha != hb ? ha < hb : ra < rb)
            best = rank;
    }
    return best;
}

static void count_sent(walk *w, int32_t src, int32_t dst, int64_t elements)
{
    int d = distance(w, src, dst);
    if (d == 2)
        w->host_sent[host_of(w->cluster, src)] += elements;
    if (d > 0)
        w->rank_sent[src - w->from.first] += elements;
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
static void make_piece(walk *w, int32_t dst_rank, const int32_t *dst_part, const int32_t *src_part)
{
    ap_piece p = {.dst_rank = dst_rank};
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
    p.src_rank = choose_sender(w, base, dst_rank);
    count_sent(w, p.src_rank, dst_rank, elements);
    w->visit(w->user, &p);
}

/* All pieces of one destination rank, an odometer over the source shards that it meets. */
static void walk_rank(walk *w, int32_t dst_rank, const int32_t *dst_part)
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
        make_piece(w, dst_rank, dst_part, at);
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
        walk_rank(w, w->to.first + r, part);
    }
}

/* ---- the list ---- */

typedef struct list {
    ap_arena *arena;
    AP_VEC(ap_piece) pieces;
} list;

static void append(void *user, const ap_piece *piece)
{
    list *l = user;
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

/* Bytes through every port. */
typedef struct ports {
    const ap_cluster *cluster;
    int32_t from, to;               /* first ranks */
    int64_t bytes;                  /* of an element */
    int64_t *sent[2], *received[2]; /* by rank of either side; [1]: to and from other hosts */
    bool used[2];
} ports;

static void load_ports(void *user, const ap_piece *piece)
{
    ports *p = user;
    int64_t bytes = p->bytes;
    if (piece->src_rank == piece->dst_rank)
        return;
    for (int d = 0; d < piece->ndims; d++)
        bytes *= piece->extent[d];
    int far = host_of(p->cluster, piece->src_rank) != host_of(p->cluster, piece->dst_rank);
    p->used[far] = true;
    p->sent[far][piece->src_rank - p->from] += bytes;
    p->received[far][piece->dst_rank - p->to] += bytes;
}

static int64_t busiest(int32_t n, const int64_t *bytes)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++)
        most = ap_max_i64(most, bytes[i]);
    return most;
}

static int64_t wire_ps(const ap_link *l, int64_t bytes)
{
    double ps = (double)bytes * 1e12 / (double)l->bytes_per_second;
    return ps < 9e18 ? (int64_t)ps : INT64_MAX;
}

int64_t ap_transfer_cost(const ap_cluster *cluster, ap_arena *arena, const ap_transfer_side *from,
                         const ap_transfer_side *to, int64_t element_bytes)
{
    ports p = {.cluster = cluster, .from = from->mesh->first_rank, .to = to->mesh->first_rank, .bytes = element_bytes};
    walk w = {.cluster = cluster, .arena = arena, .visit = load_ports, .user = &p};
    if (!open_walk(&w, from, to))
        return INT64_MAX;
    for (int far = 0; far < 2; far++) {
        p.sent[far] = AP_NEW_ARRAY(arena, int64_t, w.from.nranks);
        p.received[far] = AP_NEW_ARRAY(arena, int64_t, w.to.nranks);
    }
    walk_all(&w);
    int64_t wire = 0, latency = 0;
    for (int far = 0; far < 2; far++) {
        const ap_link *link = far ? &cluster->between : &cluster->inside;
        if (!p.used[far])
            continue;
        latency = ap_max_i64(latency, link->latency_ps);
        wire = ap_max_i64(wire, wire_ps(link, busiest(w.from.nranks, p.sent[far])));
        wire = ap_max_i64(wire, wire_ps(link, busiest(w.to.nranks, p.received[far])));
    }
    return ap_sat_add(latency, wire);
}
