/* Cross-mesh resharding against brute force: element by element, who holds it (ir/mesh.h says so), who got it and from
 * whom; for random pairs of meshes, shardings, microbatches and paddings. And prices that can be told by hand. */
#include "tests/passes/plan_util.h"

#include "ir/physical.h"
#include "passes/pipe/transfer.h"

/* A random mesh with `microbatches` (0: no time) and a shape with its paddings. */
static ap_mesh_info draw_mesh(ap_ctx *ctx, int32_t microbatches, int32_t first, uint64_t *state)
{
    static const int32_t sizes[] = {1, 2, 2, 3, 4};
    ap_mesh_info mesh = {.name = ap_name_make(ctx, "m"), .first_rank = first};
    if (microbatches) {
        mesh.ntime = 1;
        mesh.axis_name[mesh.naxes] = ap_name_make(ctx, AP_TIME_AXIS);
        mesh.axis_size[mesh.naxes++] = microbatches;
    }
    int n = (int)draw(state, 3);
    for (int a = 0; a < n; a++) {
        mesh.axis_name[mesh.naxes] = ap_name_format(ctx, "a%d", a);
        mesh.axis_size[mesh.naxes++] = sizes[draw(state, 5)];
    }
    return mesh;
}

/* Axes on random factors; factor 0 begins with time if `timed`. Extents become multiples of what splits them. */
static void draw_side(const ap_mesh_info *mesh, bool timed, int64_t microbatch, ap_shape_info *shape,
                      ap_sharding_info *s, uint64_t *state)
{
    *s = (ap_sharding_info){.nfactors = shape->nfactors};
    if (timed)
        s->axes[0] = ap_axes_append(0, 0);
    for (int a = mesh->ntime; a < mesh->naxes; a++) {
        int f = (int)draw(state, shape->nfactors + 1u);
        if (f == shape->nfactors || (f == 0 && timed && microbatch % mesh->axis_size[a]))
            continue;
        if (f == 0 && timed)
            microbatch /= mesh->axis_size[a];
        s->axes[f] = ap_axes_append(s->axes[f], a);
    }
    for (int f = 0; f < shape->nfactors; f++) {
        int64_t n = ap_mesh_axes_size(mesh, s->axes[f]);
        shape->physical[f] = (shape->logical[f] + n - 1) / n * n;
    }
}

/* Number of the element, of the whole value, at each place of the shard at this point; -1: padding. */
static int64_t *contents(ap_ctx *ctx, const ap_transfer_side *s, int32_t point, int64_t *out_count)
{
    int32_t coords[AP_MAX_AXES];
    int64_t start[AP_MAX_FACTORS], count = 1;
    ap_shape_info shard;
    ap_mesh_coords(s->mesh, point, coords);
    assert_true(ap_mesh_shard(s->mesh, s->shape, s->sharding, coords, &shard, start));
    int n = shard.nfactors;
    for (int f = 0; f < n; f++) {
        if (ap_mesh_axes_size(s->mesh, s->sharding->axes[f]) == 1)
            shard.physical[f] = s->shape->logical[f];
        count *= shard.physical[f];
    }
    int64_t *at = AP_NEW_ARRAY(&ctx->arena, int64_t, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, below = 1;
        for (int f = n - 1; f >= 0 && at[i] >= 0; f--) {
            int64_t k = rest % shard.physical[f];
            rest /= shard.physical[f];
            at[i] = k < shard.logical[f] ? at[i] + (start[f] + k) * below : -1;
            below *= s->shape->logical[f];
        }
    }
    *out_count = count;
    return at;
}

static bool holds(const int64_t *at, int64_t count, int64_t element)
{
    for (int64_t i = 0; i < count; i++)
        if (at[i] == element)
            return true;
    return false;
}

typedef struct sides {
    ap_transfer_side from, to;
    const ap_cluster *cluster;
    int64_t *src[64], *dst[64]; /* contents in one microbatch */
    int64_t src_count, dst_count;
    int32_t nsrc, ndst;
} sides;

static int32_t host(const sides *s, int32_t rank)
{
    return rank / s->cluster->devices_per_host;
}

/* A holder on the host of dst_rank, dst_rank itself; whether the piece should have come from there. */
static void check_sender(const sides *s, const ap_piece *p, int64_t element)
{
    for (int32_t r = 0; r < s->nsrc; r++) {
        int32_t rank = s->from.mesh->first_rank + r;
        if (!holds(s->src[r], s->src_count, element))
            continue;
        if (rank == p->dst_rank)
            assert_int_equal(p->src_rank, rank);
        if (host(s, rank) == host(s, p->dst_rank))
            assert_int_equal(host(s, p->src_rank), host(s, p->dst_rank));
    }
}

static void check_piece(const sides *s, const ap_piece *p, uint8_t **filled)
{
    int32_t src = p->src_rank - s->from.mesh->first_rank, dst = p->dst_rank - s->to.mesh->first_rank;
    int64_t n = 1, checked = -1;
    assert_in_range(src, 0, s->nsrc - 1);
    assert_in_range(dst, 0, s->ndst - 1);
    for (int d = 0; d < p->ndims; d++)
        n *= p->extent[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, from = p->src_offset, to = p->dst_offset;
        for (int d = p->ndims - 1; d >= 0; d--) {
            from += rest % p->extent[d] * p->src_stride[d];
            to += rest % p->extent[d] * p->dst_stride[d];
            rest /= p->extent[d];
        }
        assert_in_range(from, 0, s->src_count - 1);
        assert_in_range(to, 0, s->dst_count - 1);
        assert_int_equal(s->src[src][from], s->dst[dst][to]);
        assert_int_equal(filled[dst][to]++, 0);
        if (checked < 0 && s->dst[dst][to] >= 0)
            check_sender(s, p, checked = s->dst[dst][to]);
    }
}

static void check_microbatch(ap_ctx *ctx, sides *s, int32_t mb, const ap_transfer *t)
{
    uint8_t *filled[64];
    for (int32_t r = 0; r < s->nsrc; r++)
        s->src[r] = contents(ctx, &s->from, mb * s->nsrc + r, &s->src_count);
    for (int32_t r = 0; r < s->ndst; r++) {
        s->dst[r] = contents(ctx, &s->to, mb * s->ndst + r, &s->dst_count);
        filled[r] = AP_NEW_ARRAY(&ctx->arena, uint8_t, s->dst_count);
    }
    assert_int_equal(t->src_count, s->src_count);
    assert_int_equal(t->dst_count, s->dst_count);
    for (uint32_t i = 0; i < t->npieces; i++)
        check_piece(s, &t->piece[i], filled);
    for (int32_t r = 0; r < s->ndst; r++)
        for (int64_t i = 0; i < s->dst_count; i++)
            assert_true(filled[r][i] || (s->dst[r][i] < 0 && t->padded));
}

static void random_pairs(void **unused)
{
    (void)unused;
    static const int64_t extents[] = {1, 2, 3, 4, 5, 6, 7, 8, 12};
    uint64_t state = 11;
    int pieces = 0;
    for (int round = 0; round < 3000; round++) {
        ap_ctx *ctx = ap_ctx_create();
        ap_cluster cluster;
        ap_cluster_local(16, &cluster);
        cluster.devices_per_host = 1 + (int)draw(&state, 5);
        int32_t microbatches = draw(&state, 2) ? 1 + (int)draw(&state, 4) : 0;
        ap_mesh_info a = draw_mesh(ctx, microbatches, (int)draw(&state, 3), &state);
        ap_mesh_info b =
            draw_mesh(ctx, microbatches, (int)draw(&state, 2) ? a.first_rank + ap_mesh_ranks(&a) : 0, &state);
        int64_t dims[3];
        int rank = 1 + (int)draw(&state, 3);
        for (int d = 0; d < rank; d++)
            dims[d] = extents[draw(&state, 9)];
        bool timed = microbatches && draw(&state, 4);
        int64_t size = 1 + draw(&state, 6), left = draw(&state, (uint32_t)size);
        if (timed) /* the last microbatch may be short, or empty */
            dims[0] = size * microbatches > left + 1 ? size * microbatches - left : 2;
        ap_shape_info sa = *ap_shape_get(ctx, ap_shape_of_dims(ctx, rank, dims)), sb = sa;
        timed = timed && dims[0] > 1 && sa.nfactors && dims[0] > size * (microbatches - 1);
        ap_sharding_info ha, hb;
        draw_side(&a, timed, size, &sa, &ha, &state);
        draw_side(&b, timed, size, &sb, &hb, &state);
        if (timed)
            sa.physical[0] = sb.physical[0] = size * microbatches;
        sides s = {.from = {&a, &sa, &ha}, .to = {&b, &sb, &hb}, .cluster = &cluster};
        s.nsrc = ap_mesh_ranks(&a);
        s.ndst = ap_mesh_ranks(&b);
        ap_transfer t;
        assert_ok(ctx, ap_transfer_find(ctx, &ctx->arena, &cluster, &s.from, &s.to, &t));
        for (int32_t mb = 0; mb < (microbatches ? microbatches : 1); mb++)
            check_microbatch(ctx, &s, mb, &t);
        pieces += (int)t.npieces;
        ap_ctx_release(ctx);
    }
    assert_true(pieces > 10000);
}

/* ---- by hand ---- */

typedef struct hand {
    ap_ctx *ctx;
    ap_cluster cluster;
    ap_module *m;
    ap_transfer_side side[2];
} hand;

/* The types of the two values of a text with two meshes. */
static hand read(const char *text, int32_t devices_per_host, int64_t shared)
{
    hand h = {.ctx = ap_ctx_create()};
    ap_cluster_local(devices_per_host, &h.cluster);
    h.cluster.hosts = 64;
    h.cluster.inside = (ap_level){.latency_ps = 1000, .bytes_per_second = 100000000000};
    h.cluster.between = (ap_level){.latency_ps = 7000, .bytes_per_second = 10000000000};
    h.cluster.between.shared_bytes_per_second = shared;
    h.m = module_of(h.ctx, text);
    for (int i = 0; i < 2; i++) {
        ap_type_info t = ap_type_get(h.ctx, ap_value_type(h.m, h.m->funcs.at[0].argument[i]));
        const ap_sharding_info *s = ap_sharding_get(h.ctx, t.sharding);
        h.side[i] = (ap_transfer_side){&h.m->meshes.at[s->mesh], ap_shape_get(h.ctx, t.shape), s};
    }
    return h;
}

static void assert_shared(const char *text, int32_t devices_per_host, int64_t shared, uint32_t pieces, int64_t ps)
{
    hand h = read(text, devices_per_host, shared);
    ap_transfer t;
    assert_ok(h.ctx, ap_transfer_find(h.ctx, &h.ctx->arena, &h.cluster, &h.side[0], &h.side[1], &t));
    assert_int_equal(t.npieces, pieces);
    assert_int_equal(ap_transfer_cost(&h.cluster, &h.ctx->scratch, &h.side[0], &h.side[1], 4), ps);
    ap_ctx_release(h.ctx);
}

static void assert_price(const char *text, int32_t devices_per_host, uint32_t pieces, int64_t ps)
{
    assert_shared(text, devices_per_host, 0, pieces, ps);
}

#define TEXT(mesh_a, type_a, mesh_b, type_b)                                                                           \
    "mesh @a = " mesh_a "\nmesh @b = " mesh_b "\nfunc @f(%x: " type_a ", %y: " type_b ") {\n  ret\n}\n"

static void prices(void **unused)
{
    (void)unused;
    /* 1000 elements, 4000 bytes, over 100 GB/s: 40 ns; over 10 GB/s: 400 ns */
    assert_price(TEXT("[x=1] ranks 0..0", "f32[1000] @a[-]", "[y=1] ranks 1..1", "f32[1000] @b[-]"), 8, 1, 41000);
    assert_price(TEXT("[x=1] ranks 0..0", "f32[1000] @a[-]", "[y=1] ranks 1..1", "f32[1000] @b[-]"), 1, 1, 407000);
    /* whole on two ranks, both send half of the copies; the first of two would have sent 8000 bytes */
    assert_price(TEXT("[x=2] ranks 0..1", "f32[1000] @a[-]", "[y=2] ranks 2..3", "f32[1000] @b[-]"), 4, 2, 41000);
    /* split the same way: each its half */
    assert_price(TEXT("[x=2] ranks 0..1", "f32[1000] @a[x]", "[y=2] ranks 2..3", "f32[1000] @b[y]"), 2, 2, 207000);
    /* ... through one card of the host, which both share */
    assert_shared(TEXT("[x=2] ranks 0..1", "f32[1000] @a[x]", "[y=2] ranks 2..3", "f32[1000] @b[y]"), 2, 10000000000, 2,
                  407000);
    /* one sender, two receivers */
    assert_price(TEXT("[x=1] ranks 0..0", "f32[1000] @a[-]", "[y=2] ranks 1..2", "f32[1000] @b[-]"), 4, 2, 81000);
    /* the same ranks, the same sharding: nothing moves */
    assert_price(TEXT("[x=2] ranks 0..1", "f32[1000] @a[x]", "[y=2] ranks 0..1", "f32[1000] @b[y]"), 2, 2, 0);
    /* rows to columns of 2x2: four pieces, each rank sends and receives half of 4000 bytes */
    assert_price(TEXT("[x=2] ranks 0..1", "f32[20,50] @a[x,-]", "[y=2] ranks 2..3", "f32[20,50] @b[-,y]"), 4, 4, 21000);
}

/* Ranks 0..3 on two hosts hold all; of ranks 4..7, on the same two hosts as the cluster is laid out, each gets its copy
 * from a holder of its own host if there is one. Here there is none, so both hosts and all four devices send. */
static void spread(void **unused)
{
    (void)unused;
    hand h = read(TEXT("[x=4] ranks 0..3", "f32[8] @a[-]", "[y=4] ranks 4..7", "f32[8] @b[-]"), 2, 0);
    ap_transfer t;
    bool sends[4] = {false};
    assert_ok(h.ctx, ap_transfer_find(h.ctx, &h.ctx->arena, &h.cluster, &h.side[0], &h.side[1], &t));
    assert_int_equal(t.npieces, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(t.piece[i].dst_rank, 4 + (int)i);
        assert_false(sends[t.piece[i].src_rank]);
        sends[t.piece[i].src_rank] = true;
    }
    ap_ctx_release(h.ctx);
}

/* Powers of two cut powers of two into pieces of one size: counting them is listing them. */
static void counted(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c;
    ap_cluster_local(64, &c);
    uint64_t state = 7;
    for (int round = 0; round < 2000; round++) {
        ap_mesh_info mesh[2];
        ap_shape_info shape[2];
        ap_sharding_info sharding[2];
        int64_t dim[3];
        for (int f = 0; f < 3; f++)
            dim[f] = (int64_t)32 << draw(&state, 2);
        for (int i = 0; i < 2; i++) {
            mesh[i] = (ap_mesh_info){.name = ap_name_make(ctx, "m"), .naxes = 2, .first_rank = 32 * i};
            sharding[i] = (ap_sharding_info){.nfactors = 3};
            shape[i] = (ap_shape_info){.rank = 3, .nfactors = 3};
            for (int f = 0; f < 3; f++)
                shape[i].logical[f] = shape[i].physical[f] = dim[f];
            for (int a = 0; a < 2; a++) {
                mesh[i].axis_name[a] = ap_name_format(ctx, "a%d", a);
                mesh[i].axis_size[a] = 1 << draw(&state, a ? 3 : 4);
                int f = (int)draw(&state, 4);
                if (f < 3)
                    sharding[i].axes[f] = ap_axes_append(sharding[i].axes[f], a);
            }
        }
        ap_transfer_side from = {&mesh[0], &shape[0], &sharding[0]}, to = {&mesh[1], &shape[1], &sharding[1]};
        int64_t listed = ap_transfer_cost(&c, &ctx->scratch, &from, &to, 4),
                all = ap_transfer_estimate(&c, &from, &to, 4);
        int64_t apart = all > listed ? all - listed : listed - all;
        assert_true(listed > 0 && apart <= 1 + listed / 1000000000); /* sums of doubles */
        ap_arena_reset(&ctx->scratch);
    }
    ap_ctx_release(ctx);
}

static void refused(void **unused)
{
    (void)unused;
    static const char *const texts[] = {
        TEXT("[x=2] ranks 0..1", "f32[8] @a[-]", "[y=2] ranks 2..3", "f32[9] @b[-]"),
        TEXT("[x=2] ranks 0..1", "f32[8] @a[-] sum(x)", "[y=2] ranks 2..3", "f32[8] @b[-]"),
        "time mb=2\n" TEXT("[x=2] ranks 0..1", "f32[8] @a[mb]", "[y=2] ranks 2..3", "f32[8] @b[-]"),
        "time mb=2\n" TEXT("[x=2] ranks 0..1", "f32[6^8] @a[mb*x]", "[y=2] ranks 2..3", "f32[6] @b[mb]"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        hand h = read(texts[i], 2, 0);
        ap_transfer t;
        assert_int_equal(ap_transfer_find(h.ctx, &h.ctx->arena, NULL, &h.side[0], &h.side[1], &t), AP_ERR_BUG);
        assert_true(ap_transfer_cost(&h.cluster, &h.ctx->scratch, &h.side[0], &h.side[1], 4) == INT64_MAX);
        ap_ctx_release(h.ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pairs), cmocka_unit_test(prices),  cmocka_unit_test(spread),
        cmocka_unit_test(counted),      cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
