/* Collectives over several levels of links: where groups lie, times by hand, and what every price must keep to. */
#include "passes/cluster.h"

#include "plan_util.h"

/* Two hosts of two sockets of two devices; 1000, 4000 and 8000 ps a byte, what leaves a host is shared. */
static ap_cluster machine(void)
{
    return (ap_cluster){.hosts = 2,
                        .devices_per_host = 4,
                        .island = 2,
                        .inside = {10, 1000000000, 0},
                        .across = {100, 500000000, 500000000},
                        .between = {1000, 250000000, 500000000}};
}

static ap_span span_of(ap_ctx *ctx, const ap_cluster *c, int32_t first, int n, const int32_t *sizes, int axis)
{
    ap_span s;
    ap_mesh_info mesh = mesh_of(ctx, n, sizes);
    mesh.first_rank = first;
    ap_cluster_span(c, &mesh, axis, &s);
    return s;
}

static void assert_span(const ap_span *s, int32_t top, int32_t n0, int32_t n1, int32_t n2)
{
    assert_int_equal(s->top, top);
    assert_true(s->even);
    assert_int_equal(s->count[0], n0);
    assert_int_equal(s->count[1], n1);
    assert_int_equal(s->count[2], n2);
    assert_int_equal(s->ranks, n0 * n1 * n2);
}

static void spans(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c = machine();
    ap_span s = span_of(ctx, &c, 0, 1, (const int32_t[]){8}, 0);
    assert_span(&s, AP_LEVEL_BETWEEN, 2, 2, 2);
    assert_int_equal(s.users[AP_LEVEL_ACROSS], 2);
    assert_int_equal(s.users[AP_LEVEL_BETWEEN], 4);
    s = span_of(ctx, &c, 0, 2, (const int32_t[]){2, 4}, 0);
    assert_span(&s, AP_LEVEL_BETWEEN, 1, 1, 2);
    assert_int_equal(s.users[AP_LEVEL_BETWEEN], 4);
    s = span_of(ctx, &c, 0, 2, (const int32_t[]){2, 4}, 1);
    assert_span(&s, AP_LEVEL_ACROSS, 2, 2, 1);
    s = span_of(ctx, &c, 4, 2, (const int32_t[]){2, 2}, 0);
    assert_span(&s, AP_LEVEL_ACROSS, 1, 2, 1);
    s = span_of(ctx, &c, 4, 2, (const int32_t[]){2, 2}, 1);
    assert_span(&s, AP_LEVEL_INSIDE, 2, 1, 1);
    s = span_of(ctx, &c, 2, 1, (const int32_t[]){4}, 0); /* an island of each host */
    assert_span(&s, AP_LEVEL_BETWEEN, 2, 1, 2);
    assert_int_equal(s.users[AP_LEVEL_BETWEEN], 2);
    s = span_of(ctx, &c, 3, 1, (const int32_t[]){3}, 0); /* one here, two there */
    assert_int_equal(s.top, AP_LEVEL_BETWEEN);
    assert_false(s.even);
    assert_int_equal(s.least[AP_LEVEL_BETWEEN], 1);
    assert_int_equal(s.users[AP_LEVEL_BETWEEN], 2);
    ap_cluster one = machine();
    one.hosts = 1;
    one.devices_per_host = 8;
    one.island = 0;
    s = span_of(ctx, &one, 1, 1, (const int32_t[]){7}, 0);
    assert_span(&s, AP_LEVEL_INSIDE, 7, 1, 1);
    /* A mesh with time: microbatches are no ranks. */
    ap_mesh_info mesh = mesh_of(ctx, 2, (const int32_t[]){3, 4});
    mesh.ntime = 1;
    ap_cluster_span(&c, &mesh, 1, &s);
    assert_span(&s, AP_LEVEL_ACROSS, 2, 2, 1);
    /* Listed groups are the same thing. */
    const int32_t rank[] = {0, 4, 1, 5, 2, 6, 3, 7};
    ap_cluster_span_of(&c, 0, rank, 4, 2, &s);
    ap_span axis = span_of(ctx, &c, 0, 2, (const int32_t[]){2, 4}, 0);
    assert_memory_equal(&s, &axis, sizeof s);
    const int32_t own[] = {0, 2, 1, 3}; /* of a stage on ranks 2 to 5: each group has one in each host */
    ap_cluster_span_of(&c, 2, own, 2, 2, &s);
    axis = span_of(ctx, &c, 2, 2, (const int32_t[]){2, 2}, 0);
    assert_memory_equal(&s, &axis, sizeof s);
    assert_span(&s, AP_LEVEL_BETWEEN, 1, 1, 2);
    ap_ctx_release(ctx);
}

/* Rates of one device: 1000 ps a byte inside; across 2000, or 4000 when both of a socket send; between 4000, or 8000
 * when four of a host send. */
static void by_hand(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c = machine();
    const int64_t n = 8000;
    ap_span inner = span_of(ctx, &c, 0, 2, (const int32_t[]){4, 2}, 1);
    assert_int_equal(ap_cost_span(&c, &inner, AP_COLLECTIVE_ALL_GATHER, n), 10 + n / 2 * 1000);
    assert_int_equal(ap_cost_span(&c, &inner, AP_COLLECTIVE_ALL_TO_ALL, n), 10 + n / 4 * 1000);

    /* All eight. Hierarchy: n/2 inside, n/4 across at 4000, n/8 between at 8000. A ring would take 7/8 n at 4000. */
    ap_span all = span_of(ctx, &c, 0, 1, (const int32_t[]){8}, 0);
    int64_t near = 10 + n / 2 * 1000 + 100 + n / 4 * 4000;
    assert_int_equal(ap_cost_span(&c, &all, AP_COLLECTIVE_REDUCE_SCATTER, n), near + 1000 + n / 8 * 8000);
    assert_int_equal(ap_cost_span(&c, &all, AP_COLLECTIVE_ALL_GATHER, n), near + 1000 + n / 8 * 8000);
    /* Between two hosts a tree sends as much as a ring twice: 2 n/4 of each device's quarter. */
    assert_int_equal(ap_cost_span(&c, &all, AP_COLLECTIVE_ALL_REDUCE, n), 2 * (near + 1000 + n / 8 * 8000));
    /* Direct: n/64 to 1, 2 and 4 others. By level: n/8 held, half of it moves each time. */
    int64_t direct = 10 + n / 64 * 1000 + 2 * 100 + n / 64 * 2 * 4000 + 4 * 1000 + n / 64 * 4 * 8000;
    assert_int_equal(ap_cost_span(&c, &all, AP_COLLECTIVE_ALL_TO_ALL, n), direct);
    int64_t little = 10 + 100 + 1000 + 1 * 1000 + 1 * 4000 + 1 * 8000; /* 16 bytes */
    assert_int_equal(ap_cost_span(&c, &all, AP_COLLECTIVE_ALL_TO_ALL, 16), little);

    /* Four groups of two at once share the way out: 8000 ps a byte; one alone has 4000. */
    ap_span four = span_of(ctx, &c, 0, 2, (const int32_t[]){2, 4}, 0);
    assert_int_equal(ap_cost_span(&c, &four, AP_COLLECTIVE_ALL_GATHER, n), 1000 + n / 2 * 8000);
    ap_span alone = span_of(ctx, &c, 3, 1, (const int32_t[]){2}, 0);
    assert_int_equal(ap_cost_span(&c, &alone, AP_COLLECTIVE_ALL_GATHER, n), 1000 + n / 2 * 4000);

    /* Uneven, ranks 3 to 5: a ring over three, its slowest link shared by nobody. */
    ap_span uneven = span_of(ctx, &c, 3, 1, (const int32_t[]){3}, 0);
    assert_int_equal(ap_cost_span(&c, &uneven, AP_COLLECTIVE_ALL_GATHER, 9000), 2 * 1000 + 6000 * 4000 * 2 / 2);
    ap_ctx_release(ctx);
}

static void trees_between_many_hosts(void **unused)
{
    (void)unused;
    ap_ctx *ctx = ap_ctx_create();
    ap_cluster c = {.hosts = 64, .devices_per_host = 1, .inside = {1, 1000000000, 0}, .between = {1000, 1000000000, 0}};
    ap_span s = span_of(ctx, &c, 0, 1, (const int32_t[]){64}, 0);
    assert_int_equal(ap_cost_span(&c, &s, AP_COLLECTIVE_ALL_REDUCE, 64), 12 * 1000 + 2 * 64 * 1000);
    int64_t n = 64 << 20; /* the ring's latency no longer matters, its bytes do */
    assert_int_equal(ap_cost_span(&c, &s, AP_COLLECTIVE_ALL_REDUCE, n), 2 * (63 * 1000 + n / 64 * 63 * 1000));
    ap_ctx_release(ctx);
}

/* ---- every price: grows with bytes, falls with faster links, and nothing is sent faster than the ports carry it ----
 */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static ap_level random_level(uint32_t *seed, int64_t giga)
{
    ap_level l = {next_random(seed) % 20000000, giga * 1000000 * (1 + next_random(seed) % 1000), 0};
    if (next_random(seed) % 2)
        l.shared_bytes_per_second = l.bytes_per_second * (1 + next_random(seed) % 8);
    return l;
}

static ap_cluster random_machine(uint32_t *seed)
{
    ap_cluster c = {.hosts = 1 + (int32_t)(next_random(seed) % 5),
                    .devices_per_host = 1 + (int32_t)(next_random(seed) % 8)};
    for (int32_t i = (int32_t)(next_random(seed) % 4); i > 1; i--)
        if (c.devices_per_host % i == 0 && c.island == 0)
            c.island = i;
    c.inside = random_level(seed, 100);
    c.inside.shared_bytes_per_second = 0;
    c.across = random_level(seed, 30);
    c.between = random_level(seed, 10);
    return c;
}

/* The bytes that must leave (or enter) the ranks [lo, hi) of this group for `kind`. */
static double outgoing(ap_collective kind, int32_t p, int32_t part, double bytes)
{
    if (part == 0 || part == p)
        return 0;
    if (kind == AP_COLLECTIVE_ALL_TO_ALL)
        return bytes / p / p * part * (p - part);
    /* What the others must get, or have reduced; an all-reduce does both. */
    double once = bytes * (p - part) / p < bytes * part / p ? bytes * (p - part) / p : bytes * part / p;
    return kind == AP_COLLECTIVE_ALL_REDUCE ? once : bytes * part / p < once ? bytes * part / p : once;
}

/* Over the way out of every host: what all groups send there at once. */
static double least_time(const ap_cluster *c, const ap_mesh_info *mesh, int axis, ap_collective kind, double bytes)
{
    int32_t stride = 1, size = mesh->axis_size[axis], ranks = ap_mesh_size(mesh);
    double worst = 0;
    for (int a = axis + 1; a < mesh->naxes; a++)
        stride *= mesh->axis_size[a];
    for (int32_t h = 0; h < c->hosts; h++) {
        double sum = 0;
        int32_t here = 0;
        for (int32_t g = 0; g < ranks / size; g++) {
            int32_t part = 0;
            for (int32_t k = 0; k < size; k++) {
                int32_t rank = mesh->first_rank + g / stride * stride * size + g % stride + k * stride;
                part += rank / c->devices_per_host == h;
            }
            sum += outgoing(kind, size, part, bytes);
            here += part;
        }
        double rate = (double)c->between.bytes_per_second * here;
        if (c->between.shared_bytes_per_second && rate > (double)c->between.shared_bytes_per_second)
            rate = (double)c->between.shared_bytes_per_second;
        if (sum > 0 && sum / rate > worst)
            worst = sum / rate;
    }
    return worst * 1e12;
}

static void bounds(void **unused)
{
    (void)unused;
    uint32_t seed = 7;
    ap_ctx *ctx = ap_ctx_create();
    for (int round = 0; round < 3000; round++) {
        ap_cluster c = random_machine(&seed);
        int32_t devices = ap_cluster_devices(&c), x = 1 + (int32_t)(next_random(&seed) % (uint32_t)devices);
        int32_t sizes[2] = {x, 1 + (int32_t)(next_random(&seed) % (uint32_t)(devices / x))};
        ap_mesh_info mesh = mesh_of(ctx, 2, sizes);
        mesh.first_rank = (int32_t)(next_random(&seed) % (uint32_t)(devices - sizes[0] * sizes[1] + 1));
        for (int axis = 0; axis < 2; axis++)
            for (int kind = 0; kind < AP_COLLECTIVE_COUNT; kind++) {
                ap_span s;
                ap_cluster_span(&c, &mesh, axis, &s);
                int64_t bytes = next_random(&seed) % 100000000, cost = ap_cost_span(&c, &s, (ap_collective)kind, bytes);
                assert_true(cost >= 0 && cost <= ap_cost_span(&c, &s, (ap_collective)kind, bytes + 1));
                ap_cluster fast = c;
                fast.between.bytes_per_second *= 2;
                fast.inside.latency_ps /= 2;
                assert_true(ap_cost_span(&fast, &s, (ap_collective)kind, bytes) <= cost);
                double least = least_time(&c, &mesh, axis, (ap_collective)kind, (double)bytes);
                if ((double)cost < least * 0.999999 - 1)
                    fail_msg("round %d axis %d kind %d: %lld ps, at least %f", round, axis, kind, (long long)cost,
                             least);
            }
    }
    ap_ctx_release(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(trees_between_many_hosts),
        cmocka_unit_test(bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
